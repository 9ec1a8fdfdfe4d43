"""The conversation so far, folded from the log, for agents that keep no memory of their own.

Only turns' events count: a client's own events never enter it. A tool that has no result yet (its turn is gone) gets
one that says so, since models refuse a call without a result.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from app.agents.contract import ImageRef, Json, Message
from app.agents.prompt import prompt_of
from app.events.canonical import decode
from app.events.envelope import Envelope
from app.log.store import EventStore, Slice

_TYPES = frozenset({"user_message", "assistant_message", "tool_call", "tool_result"})


class LogTranscript:
    """The transcript of a session up to a place."""

    def __init__(self, store: EventStore, session_id: str, upto: int) -> None:
        self._store = store
        self._session_id = session_id
        self._upto = upto

    async def messages(self) -> list[Message]:
        """All messages of the turns before, oldest first."""
        events: list[Envelope] = []
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                events += [event for event in page if event.type in _TYPES and event.turn_id is not None]
        return fold(events)

    async def own_events(self, event_type: str) -> AsyncGenerator[Json, None]:
        """The data of the agent's own events of that type, oldest first."""
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                for event in page:
                    if event.type == event_type and event.turn_id is not None:
                        yield decode(event.data)

    async def _pages(self) -> AsyncGenerator[Sequence[Envelope], None]:
        after = 0
        while page := await self._store.read(self._session_id, Slice(after, self._upto, whole_turn="")):
            yield page
            after = page[-1].place


def fold(events: Iterable[Envelope]) -> list[Message]:
    """The messages that these events tell. A call goes to the message that it belongs to; parallel ones share it."""
    messages: list[Message] = []
    callers: dict[str, Message] = {}
    unanswered: dict[str, Message] = {}
    for event in events:
        data = decode(event.data)
        if event.type == "user_message":
            messages.append(_user(data["content"]))
        elif event.type == "tool_result":
            answer = unanswered.pop(data["toolCallId"], None)
            if answer is not None:
                answer["content"] = data["content"]
        elif event.type == "tool_call":
            caller = callers.get(data["messageId"])
            if caller is None:
                caller = callers[data["messageId"]] = {"role": "assistant", "content": ""}
                messages.append(caller)
            caller.setdefault("toolCalls", []).append({key: data[key] for key in ("id", "name", "arguments")})
            answer = {"role": "tool", "content": "interrupted", "toolCallId": data["id"]}
            unanswered[data["id"]] = answer
            messages.append(answer)
        elif event.type == "assistant_message" and data["content"]:
            message: Message = {"role": "assistant", "content": data["content"]}
            callers[data["messageId"]] = message
            messages.append(message)
    return messages


def _user(content: str | list[dict[str, Any]]) -> Message:
    prompt = prompt_of(content)
    message: Message = {"role": "user", "content": prompt["text"]}
    images: list[ImageRef] = prompt.get("images", [])
    if images:
        message["images"] = images
    return message
