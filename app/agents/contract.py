"""The Agent Handler contract in Python: one method, one call a turn, one stream of events.

`Agent.invoke` is declared as a plain `def` that returns an async iterable, so an async generator function is a
valid implementation. Events are JSON objects with a string `type`; the types below are the known ones, and a type
that is not among them passes through untouched. Exactly one of `completed` and `failed` ends a stream that is read
to its end; a stream that is cancelled needs neither.

Source: Agent Handler protocol specification v0.1.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, runtime_checkable

Json: TypeAlias = Any
"""null, bool, number, string, list, or string-keyed map of the same."""


class Text(TypedDict):
    """A piece of the answer. The answer is all of them, joined."""

    type: Literal["text"]
    delta: str


class Thinking(TypedDict):
    """A piece of the model's reasoning. Never part of the answer."""

    type: Literal["thinking"]
    delta: str


class ToolStarted(TypedDict):
    """A tool begins to run. It may stay without a `tool_ended` when the turn is cancelled."""

    type: Literal["tool_started"]
    id: str
    name: str
    args: Json


class ToolEnded(TypedDict):
    """A tool has run; `id` is that of its `tool_started`."""

    type: Literal["tool_ended"]
    id: str
    isError: bool
    content: Json


class Retrying(TypedDict):
    """Advisory: the agent waits before it tries again. The next event closes it."""

    type: Literal["retrying"]
    attempt: int
    maxAttempts: int
    delayMs: int
    reason: str


class Completed(TypedDict):
    """The turn succeeded. `data` is present only with a structured result and never repeats the text."""

    type: Literal["completed"]
    data: NotRequired[Json]


class Failed(TypedDict):
    """The turn failed. Programs branch on `code`; `details` is for people."""

    type: Literal["failed"]
    details: str
    retryable: bool
    code: NotRequired[str]


AgentEvent: TypeAlias = Mapping[str, Any]
"""Any event, known or not. See the classes above for the known ones."""

TERMINAL_TYPES = frozenset({"completed", "failed"})


class ImageRef(TypedDict):
    """An image of the prompt: its media type and its bytes in base64."""

    mimeType: str
    data: str


class Prompt(TypedDict):
    """What the user says in this turn."""

    text: str
    images: NotRequired[list[ImageRef]]


class Message(TypedDict):
    """One earlier message of the conversation, as a transcript tells it.

    `role` is "user", "assistant" or "tool". A user's `content` is text and `images` its pictures. An assistant's
    `toolCalls` name the tools that it called (`id`, `name`, `arguments`); each is answered by a message of role
    "tool" with that `toolCallId`, whose `content` is text.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    images: NotRequired[list[ImageRef]]
    toolCalls: NotRequired[list[dict[str, Any]]]
    toolCallId: NotRequired[str]


class Model(TypedDict):
    """A model that an agent allows. `displayName` is what people see."""

    id: str
    provider: str
    displayName: NotRequired[str]


class Transcript(Protocol):
    """The conversation before this turn, read from the session's log, oldest message first."""

    async def messages(self) -> list[Message]:
        """All earlier messages of the session. Turns that failed or were aborted keep what they had said."""
        ...

    def own_events(self, event_type: str) -> AsyncGenerator[Json, None]:
        """The data of the agent's own events of that type in earlier turns, oldest first.

        An event of an unknown type that an agent yields is kept in the log; so an agent remembers things of a session
        by saying them. Clients can't forge such events. Read no further than needed: pages come as they are asked for.
        """
        ...


class Scope(TypedDict):
    """Where a turn belongs. Agents must tolerate keys that they do not know.

    `session` is the conversation's anchor, the same for each of its turns. The others are extensions of this server:
    the turn's id, the principal that asked, the W3C trace id, the conversation so far, and, for an agent that declares
    them (see `app.agents.options`), the session's model and its settings, defaults filled in.
    """

    session: str
    turn: NotRequired[str]
    principal: NotRequired[str]
    trace: NotRequired[str]
    transcript: NotRequired[Transcript]
    model: NotRequired[Model]
    settings: NotRequired[Mapping[str, Json]]


@runtime_checkable
class Agent(Protocol):
    """Anything that runs a turn.

    Optional attributes: `name`, what people call it; `allowed_models` and `settings_schema`, what they may choose; and
    `aclose`, a coroutine function that is called when its server stops.
    """

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterable[AgentEvent]:
        """Run one turn and stream its events. A failure is an event, never an exception.

        When the caller stops reading (cancellation or `aclose`), work in progress must stop promptly.
        """
        ...
