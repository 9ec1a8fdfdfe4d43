"""Takes secrets out of what an agent says, also when one is spread over several deltas.

The end of a text that may be the beginning of a match, or a match that may go on, is held back until it is decided:
`regex` can tell a partial match, so nothing else is delayed. What is held is let go before a tool's events and before
the end, and kept over all others; what is longer than `_MOST_HELD` is decided as if it ended there. Text and thinking
are each a text of their own. Strings in a tool's arguments and result, in `completed.data`, `failed.details` and
`retrying.reason` are each looked at whole, an object's keys too. An event of an unknown type passes through unchanged, as
the contract asks of a relay.

A pattern may take exponentially long on a text that was made for it, and would hold up every turn of the process. After
`_SECONDS` the turn fails with `not_redacted`, and what was not decided is shown to nobody.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import regex

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay

CODE = "not_redacted"
_SECONDS = 0.25
_TOO_SLOW = f"a pattern was not done with a text after {_SECONDS:g} s"
_CONTEXT = 64
_MOST_HELD = 64 * 1024
_WHOLE: dict[str, str] = {
    "tool_started": "args",
    "tool_ended": "content",
    "retrying": "reason",
    "completed": "data",
    "failed": "details",
}
_LETS_GO = frozenset(_WHOLE) - {"retrying"}


class _Undecided(Exception):
    """Whether there is a secret in it can't be told; the message says why."""


class Redact:
    """Replaces every match of the `patterns` (of the `regex` library) by `replacement`."""

    def __init__(self, agent: Agent, *patterns: str, replacement: str = "[redacted]") -> None:
        """Raises ValueError for no pattern, one that is none, and one that matches the empty text."""
        if not patterns:
            raise ValueError("name at least one pattern to redact")
        try:
            for pattern in patterns:
                regex.compile(pattern)
            # The groups of each are counted from 1, so that a `\1` means what it meant alone.
            self._pattern = regex.compile(f"(?|{'|'.join(f'(?:{pattern})' for pattern in patterns)})")
        except regex.error as error:
            raise ValueError(f"not a pattern: {error}") from error
        if self._pattern.fullmatch(""):
            raise ValueError("a pattern that matches nothing at all would match everywhere")
        self._agent = agent
        self._replacement = replacement

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        texts = {kind: _Text(self._pattern, self._replacement) for kind in ("text", "thinking")}
        async with aclosing(relay(self._agent, scope, prompt)) as events:
            async for event in events:
                try:
                    said = self._said(event, texts)
                except _Undecided as undecided:
                    details = str(undecided)
                    break
                for each in said:
                    yield each
            else:
                return
        yield {"type": "failed", "details": details, "retryable": False, "code": CODE}

    def _said(self, event: AgentEvent, texts: "dict[str, _Text]") -> list[AgentEvent]:
        """What becomes of an event."""
        text = texts.get(event["type"])
        if text is not None and isinstance(event.get("delta"), str):
            said = text.take(event["delta"])
            return [{**event, "delta": said}] if said or not event["delta"] else []
        let_go: list[AgentEvent] = []
        if event["type"] in _LETS_GO:
            let_go = [{"type": kind, "delta": said} for kind, held in texts.items() if (said := held.flush())]
        return [*let_go, self._whole(event)]

    def _whole(self, event: AgentEvent) -> AgentEvent:
        key = _WHOLE.get(event["type"])
        if key is None or key not in event:
            return event
        try:
            cleaned = self._cleaned(event[key])
        except TimeoutError as error:
            raise _Undecided(_TOO_SLOW) from error
        except RecursionError as error:
            raise _Undecided(f"the {key} are nested too deeply to be looked at") from error
        return {**event, key: cleaned}

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda _: self._replacement, value, timeout=_SECONDS)
        if isinstance(value, Mapping):
            return {
                self._cleaned(key) if isinstance(key, str) else key: self._cleaned(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self._cleaned(item) for item in value)
        return value


class _Text:
    """One text as it comes: what was let go (its end, for patterns that look behind), and what is held."""

    def __init__(self, pattern: "regex.Pattern[str]", replacement: str) -> None:
        self._pattern = pattern
        self._replacement = replacement
        self._behind = ""
        self._held = ""

    def take(self, delta: str) -> str:
        """Add a piece; returns what is decided."""
        self._held += delta
        return self._decide(is_last=len(self._held) > _MOST_HELD)

    def flush(self) -> str:
        """All that is held, as if nothing came after it."""
        return self._decide(is_last=True)

    def _decide(self, *, is_last: bool) -> str:
        text = self._behind + self._held
        at = len(self._behind)
        decided: list[str] = []
        while at < len(text):
            try:
                match = self._pattern.search(text, at, partial=not is_last, timeout=_SECONDS)
            except TimeoutError as error:
                raise _Undecided(_TOO_SLOW) from error
            start, end = match.span() if match else (len(text), len(text))
            decided.append(text[at:start])
            at = start
            if match is None or match.partial or (end == len(text) and not is_last):
                break
            decided.append(self._replacement if end > start else text[start : end + 1])
            at = max(end, start + 1)
        self._behind, self._held = text[max(0, at - _CONTEXT) : at], text[at:]
        return "".join(decided)
