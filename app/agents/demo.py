"""The built-in agent: no model, no key, and a word for everything that an agent may do.

Words in the prompt choose what happens and may be combined: `thinking`, `tools`, `markdown`, `images`,
`slow`, `long`, `fail`, `crash`, `hang`, `unknown`. Any other prompt gets a short answer that repeats its
beginning. Parts always come in the same order: thinking, images, tools, the unknown event, the hanging tool,
text, ending. Its two settings, `thinking` and `pace`, do for a session what the words do for a prompt.

`crash` raises on purpose: it shows what a server makes of an agent that breaks the contract.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from app.agents.contract import AgentEvent, ImageRef, Json, Prompt, Scope

log = logging.getLogger(__name__)

_WORDS = frozenset(
    {"thinking", "tools", "markdown", "images", "slow", "long", "fail", "crash", "hang", "unknown"}
)
_LONG_TOKENS = 200
_ECHO_LIMIT = 60

_THOUGHTS = "The user wants to see how I think. I think in small steps, then I answer. "
_MARKDOWN = """\
# A demonstration

## A list

- sessions are **durable logs**
- readers are *cursors*

## A table

| event | lasting |
|---|---|
| `assistant_message` | yes |
| `assistant_message_delta` | no |

## Some code

```python
async for event in agent.invoke(scope, prompt):
    print(event["type"])
```
"""
_PARTIAL = "Here is the beginning of an answer, but "


class DemoAgent:
    """Answers after `delay` seconds a token, `slow_delay` if the prompt says `slow`."""

    name = "demo"
    description = "Shows what a turn can have; nothing that it says is meant."
    settings_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "thinking": {
                "type": "boolean",
                "title": "Think aloud",
                "description": "Show some reasoning before every answer.",
                "default": False,
                "placement": "chat-bottom",
            },
            "pace": {
                "type": "string",
                "title": "Pace",
                "description": "How fast the answer is written.",
                "enum": ["normal", "slow"],
                "enumLabels": ["Normal", "Slow"],
                "default": "normal",
            },
        },
    }

    def __init__(self, *, delay: float = 0.015, slow_delay: float = 0.1) -> None:
        self._delay = delay
        self._slow_delay = slow_delay

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        words = frozenset(re.findall(r"\w+", prompt["text"].lower())) & _WORDS | _wanted(
            scope.get("settings", {})
        )
        delay = self._slow_delay if "slow" in words else self._delay
        for event in [*_preface(words, prompt), *_answer(words, prompt)]:
            await asyncio.sleep(delay)
            yield event
            if event.get("id") == "demo_hang":
                await _hang()
        if "crash" in words:
            raise RuntimeError("the demo agent crashed, as it was told")
        yield _ending(words)


def _wanted(settings: Mapping[str, Json]) -> frozenset[str]:
    """The words that the session's settings stand for."""
    return frozenset(
        word
        for word, is_wanted in (
            ("thinking", settings.get("thinking") is True),
            ("slow", settings.get("pace") == "slow"),
        )
        if is_wanted
    )


async def _hang() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.info("the demo agent's hanging tool was stopped")


def _preface(words: frozenset[str], prompt: Prompt) -> list[AgentEvent]:
    """All that comes before the answer's text."""
    events: list[AgentEvent] = []
    if "thinking" in words:
        events += [{"type": "thinking", "delta": token} for token in _tokens(_THOUGHTS)]
    images = prompt.get("images") or []
    if images or "images" in words:
        events += _text(_received(images))
    if "tools" in words:
        events += _two_tools()
    if "unknown" in words:
        events.append({"type": "demo_progress", "step": 1, "data": {"done": [1, None], "of": {"steps": 2}}})
    if "hang" in words:
        events.append({"type": "tool_started", "id": "demo_hang", "name": "wait_for_ever", "args": {}})
    return events


def _two_tools() -> list[AgentEvent]:
    """Both start before either ends, and the second ends first."""
    return [
        {"type": "tool_started", "id": "demo_weather", "name": "get_weather", "args": {"city": "Aarhus"}},
        {"type": "tool_started", "id": "demo_clock", "name": "get_time", "args": {"zone": "UTC"}},
        {"type": "tool_ended", "id": "demo_clock", "isError": False, "content": "12:00"},
        {
            "type": "tool_ended",
            "id": "demo_weather",
            "isError": False,
            "content": {"celsius": 11.5, "sky": "cloudy"},
        },
    ]


def _answer(words: frozenset[str], prompt: Prompt) -> list[AgentEvent]:
    """The text. A turn that only shows something else needs no greeting."""
    events: list[AgentEvent] = []
    if "markdown" in words:
        events += _text(_MARKDOWN)
    if "long" in words:
        events += [{"type": "text", "delta": f"token {number} "} for number in range(1, _LONG_TOKENS + 1)]
    if words & {"fail", "crash"}:
        events += _text(_PARTIAL)
    elif not events:
        events += _text(_greeting(prompt["text"]))
    return events


def _ending(words: frozenset[str]) -> AgentEvent:
    if "fail" in words:
        details = "the demo agent failed, as it was told"
        return {"type": "failed", "details": details, "retryable": True, "code": "demo_failure"}
    return {"type": "completed"}


def _greeting(text: str) -> str:
    beginning = " ".join(text.split())
    if len(beginning) > _ECHO_LIMIT:
        beginning = f"{beginning[:_ECHO_LIMIT].rstrip()}…"
    said = f"You said: “{beginning}”." if beginning else "You said nothing."
    return f"Hello! {said} I am the demo agent; try the words thinking, tools, markdown or images."


def _received(images: list[ImageRef]) -> str:
    if not images:
        return "I received no image. "
    each = ", ".join(f"{image['mimeType']} of {_size(image['data'])} bytes" for image in images)
    return f"I received {len(images)} image{'s' if len(images) > 1 else ''}: {each}. "


def _size(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _text(text: str) -> list[AgentEvent]:
    return [{"type": "text", "delta": token} for token in _tokens(text)]


def _tokens(text: str) -> list[str]:
    """Words with the blanks after them: joined, they are the text again."""
    return re.findall(r"\S+\s*", text)
