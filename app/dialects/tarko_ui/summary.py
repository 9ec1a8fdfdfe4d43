"""A conversation's title: how an agent is asked for one, what is made of its answer, and what stands in for it. No I/O."""

from collections.abc import Sequence
from typing import Any

from app.dialects.tarko_ui.messages import tidy

LONGEST = 100
EXCERPT = 4_000
UNTITLED = "Untitled"


def question(messages: Sequence[dict[str, Any]]) -> str:
    """What the agent is asked."""
    told = "\n".join(
        f"{message.get('role', 'user')}: {_text(message.get('content'))}" for message in messages
    )
    return (
        "Give the following conversation a title of at most ten words. Answer with the title alone.\n\n"
        + told[:EXCERPT]
    )


def title_of(answer: str | None, messages: Sequence[dict[str, Any]]) -> str:
    """The answer's first line; without one, the conversation's first words."""
    texts = [answer or "", *(_text(message.get("content")) for message in messages)]
    lines = (tidy(line.strip(" \"'*#`")) for text in texts for line in text.splitlines())
    return _shortened(next((line for line in lines if line), UNTITLED))


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1].rstrip()}…"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str))
