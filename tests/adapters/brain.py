"""What the offline models of all frameworks do: one script, chosen by what the conversation ends with.

Each framework's model tells `steps` what it was shown and acts them in its SDK's own words. So all adapters are held to
the same golden transcripts, and a conversation that lost a message is seen in the answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

WEATHER = "11 degrees in Aarhus"
REPORT = {"city": "Aarhus", "celsius": 11}


@dataclass(frozen=True)
class Seen:
    """One message that a model was shown. `role` is user, assistant, tool or system."""

    role: str
    text: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class Call:
    """Call a tool and end the answer."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Fail:
    """An error of the provider, with the status that it gives."""

    status: int


@dataclass(frozen=True)
class Hang:
    """Say nothing more, for ever."""


Step = Say | Think | Call | Fail | Hang


class Gate:
    """Where a model or a tool hangs; says when it was reached and when it was left."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left = asyncio.Event()

    async def hang(self) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


gates: dict[str, Gate] = {}
"""The gate of the running test, by `text` or `tool`."""


SCRIPTS: dict[str, list[Step]] = {
    "weather": [Say("Let me look. "), Call("weather", {"city": "Aarhus"})],
    "think": [Think("Two and "), Think("two."), Say("Four"), Say(".")],
    "hang": [Say("Wait"), Hang()],
    "tool": [Call("wait", {})],
    "broken": [Call("broken", {})],
}


def held() -> Iterator[Step]:
    """Says a word, then hangs; tells when the model lets go of it."""
    try:
        yield Say("Wait")
        yield Hang()
    finally:
        gates["held"].left.set()


def steps(seen: list[Seen]) -> Iterable[Step]:
    last = seen[-1]
    if last.text == "held":
        return held()
    if last.role == "tool":
        return [Say("It is "), Say(f"{last.text}.")]
    match last.text.split():
        case ["fail", status]:
            return [Fail(int(status))]
        case ["fail", "late", status]:
            return [Say("Well"), Fail(int(status))]
        case ["look"]:
            return [Say(f"I see {', '.join(last.images) or 'nothing'}.")]
        case ["history"]:
            users = [each for each in seen if each.role == "user"]
            shown = " | ".join(
                f"{each.role}: {each.text}" for each in seen if each.text and each.role != "system"
            )
            return [Say("I saw "), Say(f"{len(users)} prompts: {shown}")]
        case _:
            return SCRIPTS.get(last.text, [Say("Hello"), Say(", "), Say("world.")])


async def weather(city: str) -> str:
    """The weather in a city."""
    return f"11 degrees in {city}"


async def wait() -> str:
    """Wait for ever."""
    await gates["tool"].hang()
    return "never"


async def broken() -> str:
    """A tool that doesn't work."""
    raise ValueError("out of order")


class ProviderError(Exception):
    """What a provider's SDK raises."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the provider answers {status}")
        self.status_code = status
