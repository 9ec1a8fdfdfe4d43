"""The events of the log: their types and what their `data` holds.

The documented types follow Tarko's Agent Protocol; those it has no word for (thinking, the run's start and end) are
its "custom event types". Every event of a turn carries what a reader needs to understand it alone: the message it
belongs to, the tool's name beside the tool call's id. Keys beyond the protocol's own are marked as extensions.
"""

import re
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic refuses typing's own before Python 3.12

VERSION = "1.0"

Source = Literal["user", "agent", "server", "client"]
"""Who an event comes from, as `metadata.source` says it."""

EndingStatus = Literal["completed", "failed", "aborted", "interrupted"]

FinishReason = Literal["stop", "length", "tool_calls", "error", "abort"]
"""`error` and `abort` extend the protocol's three for turns that did not complete."""


class UserMessage(TypedDict):
    """What the user said: text, or content parts as they came."""

    content: str | list[dict[str, Any]]
    role: Literal["user"]


class AgentRunStart(TypedDict):
    """A turn begins."""

    turnId: str
    agentName: str


class AssistantMessageStart(TypedDict):
    """A message opens. `messageId` (extension) is shared by its deltas and its close."""

    role: Literal["assistant"]
    messageId: str


class AssistantMessageDelta(TypedDict):
    """A piece of the open message."""

    delta: str
    messageId: str


class AssistantMessage(TypedDict):
    """A message closes, with its whole text."""

    content: str
    role: Literal["assistant"]
    finishReason: FinishReason
    messageId: str


class AssistantThinkingDelta(TypedDict):
    """A piece of reasoning; never part of the answer."""

    delta: str
    messageId: str


class AssistantThinkingMessage(TypedDict):
    """A stretch of reasoning closes, with its whole text and how long it took, in milliseconds."""

    content: str
    durationMs: int
    messageId: str


class ToolCall(TypedDict):
    """The agent calls a tool. Arguments that are no object are wrapped as `{"value": ...}`."""

    id: str
    name: str
    arguments: dict[str, Any]
    type: Literal["function"]
    messageId: str


class ToolExecutionStart(TypedDict):
    """The tool begins to run."""

    toolCallId: str
    name: str


class ToolResult(TypedDict):
    """The tool has run. `content` is text; `rawContent` (extension) is there when the result was not.

    `elapsedMs` (extension) is the time since its call, in milliseconds.
    """

    toolCallId: str
    name: str
    content: str
    success: bool
    elapsedMs: int
    error: NotRequired[str]
    rawContent: NotRequired[Any]


class SessionStart(TypedDict):
    """The session was created; the first event of every session. `timestamp` is epoch milliseconds."""

    sessionId: str
    agentName: str
    timestamp: int


class SessionEnd(TypedDict):
    """The session was deleted; the last event. `duration` is milliseconds, `messageCount` user and assistant."""

    sessionId: str
    duration: int
    messageCount: int


class ErrorData(TypedDict):
    """Something went wrong. Programs branch on `code`."""

    error: str
    code: str
    recoverable: bool
    details: NotRequired[dict[str, Any]]


class AgentRunEnd(TypedDict):
    """A turn has ended; the last event of every turn. `data` is the agent's structured result, where there is one.

    A turn that completed with a question for the user has `code` "input_required" and the `question`.
    """

    turnId: str
    status: EndingStatus
    elapsedMs: int
    data: NotRequired[Any]
    code: NotRequired[Literal["input_required"]]
    question: NotRequired[str]


SHAPES: dict[str, type] = {
    "user_message": UserMessage,
    "agent_run_start": AgentRunStart,
    "assistant_message_start": AssistantMessageStart,
    "assistant_message_delta": AssistantMessageDelta,
    "assistant_message": AssistantMessage,
    "assistant_thinking_delta": AssistantThinkingDelta,
    "assistant_thinking_message": AssistantThinkingMessage,
    "tool_call": ToolCall,
    "tool_execution_start": ToolExecutionStart,
    "tool_result": ToolResult,
    "session_start": SessionStart,
    "session_end": SessionEnd,
    "error": ErrorData,
    "agent_run_end": AgentRunEnd,
}
"""What this server writes, type by type."""

RESERVED = frozenset(SHAPES) | {
    "user_query",
    "tool_execution_delta",
    "context_compressed",
    "session_joined",
    "session_left",
    "abort_result",
    "query_queued",
    "pong",
    "question_closed",
}
"""Types with a meaning of their own: neither an agent's unknown events nor a client's own may use them."""

MAX_TYPE_LENGTH = 200

_TYPE = re.compile(rf"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{{1,{MAX_TYPE_LENGTH}}}")


def is_event_type(text: str) -> bool:
    """Whether the text can name an event: 1 to 200 characters that cannot end a line or hide."""
    return _TYPE.fullmatch(text) is not None
