"""A plain function of text, with what was said before."""

from collections.abc import AsyncIterator


async def answer(text: str, *, messages: list[dict[str, str]]) -> AsyncIterator[str]:
    for word in text.split():
        yield f"{word} "
    yield f"- after {len(messages)} earlier messages"
