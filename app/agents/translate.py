"""From agent events to log events: the one place where a turn's stream is remembered.

A *segment* is a stretch of thinking and text between tool calls; it owns one `messageId`. The translation knows which
segment is open, what it has said and which tools run, and writes all of that into each event, so everything after it
— storage, every dialect, every reader — can take events one at a time. It does no I/O and reads no clock but the one
it is given. `recall` rebuilds it from a turn's stored events, for a turn whose process is gone.

Promises: whatever the agent does, `end` closes what is open (message, thinking, tools) before `agent_run_end`; every
turn has a closing `assistant_message`, be it empty; text that was streamed is in it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from app.agents.contract import AgentEvent
from app.agents.outcome import BadEvent
from app.agents.running_tools import RunningTool, RunningTools
from app.events.canonical import NotJson, decode, encode, encode_text
from app.events.ending import ABSENT, Ending
from app.events.envelope import Draft, Envelope, now_ms
from app.events.metadata import metadata
from app.events.vocabulary import RESERVED, FinishReason, is_event_type

MAX_EVENT = 16 * 2**20
MAX_TURN = 64 * 2**20

UNKNOWN_TOOL = "unknown"
NO_MARKS: Mapping[str, Any] = MappingProxyType({})

_FINISH: dict[str, FinishReason] = {
    "completed": "stop",
    "failed": "error",
    "aborted": "abort",
    "interrupted": "error",
}
UNFINISHED_TOOL = {
    "completed": "no_result",
    "failed": "turn_failed",
    "aborted": "aborted",
    "interrupted": "interrupted",
}


class Translation:
    """One turn's translation. Call `begin` once, `take` for each agent event, `end` once.

    `max_event` and `max_turn` are bytes, encoded: of one event of the agent's, and of the turn's closing messages
    together. One of these may be larger than an event may be: see decision 17.
    """

    def __init__(
        self,
        turn_id: str,
        agent_name: str,
        *,
        trace_id: str | None = None,
        continues: str | None = None,
        clock: Callable[[], int] = now_ms,
        max_event: int = MAX_EVENT,
        max_turn: int = MAX_TURN,
    ) -> None:
        self.turn_id = turn_id
        self._agent_name = agent_name
        self._trace_id = trace_id
        self._marks = {} if continues is None else {"continues": continues}
        self._clock = clock
        self._max_event = max_event
        self._max_turn = max_turn
        self._metadata = metadata("agent", trace_id, **self._marks)
        self.question = ""
        self._began = clock()
        self._said = 0
        self._segments = 0
        self._asked = self._began
        self._answered = self._began
        self._message_id = ""
        self._tools_message_id = ""
        self._delta_tail = b""
        self._text: bytearray | None = None
        self._thinking: bytearray | None = None
        self._thinking_began = 0
        self._tools = RunningTools()
        self._handlers: dict[str, Callable[[AgentEvent], list[Draft]]] = {
            "text": self._take_text,
            "thinking": self._take_thinking,
            "tool_started": self._take_tool_started,
            "tool_ended": self._take_tool_ended,
            "input_required": self._take_question,
        }

    def begin(self, content: str | list[dict[str, Any]], marks: Mapping[str, Any] = NO_MARKS) -> list[Draft]:
        """The events that open a turn: what the user said, as it came, and the start of the run.

        `marks` are kept in the metadata of what the user said.
        """
        return [
            self._draft(
                "user_message",
                {"content": content, "role": "user"},
                metadata("user", self._trace_id, **marks, **self._marks),
            ),
            self._draft(
                "agent_run_start",
                {"turnId": self.turn_id, "agentName": self._agent_name},
                metadata("server", self._trace_id, **self._marks),
            ),
        ]

    def needs_tool_ids(self, event: AgentEvent) -> bool:
        """Whether `know_tool_ids` must be called before this event is taken."""
        return not self._tools.knows_session and event["type"] in ("tool_started", "tool_ended")

    def know_tool_ids(self, ids: Iterable[str]) -> None:
        """Tell which tool call ids the session has used, so that this turn's differ from them."""
        self._tools.know(ids)

    def take(self, event: AgentEvent) -> list[Draft]:
        """The log events that one non-terminal agent event becomes.

        Raises `BadEvent` when it is not JSON, has the wrong shape or is too large; nothing of it is kept then.
        """
        try:
            handler = self._handlers.get(event["type"])
            if handler is None:
                return [self._pass_through(event)]
            return handler(event)
        except NotJson as error:
            raise BadEvent(f"{event['type'][:80]!r} event: {error}") from error

    def check_result(self, data: Any) -> None:
        """Raise `BadEvent` when a turn's structured result can't be stored."""
        try:
            self._check_size({"data": data})
        except NotJson as error:
            raise BadEvent(f"'completed' event: {error}") from error

    def end(self, ending: Ending) -> list[Draft]:
        """The events that close the turn, `agent_run_end` last."""
        marks = metadata("server", self._trace_id, iterations=max(1, self._segments), **self._marks)
        drafts: list[Draft] = self._close_thinking()
        if self._text is None:
            drafts += self._open_text()
        drafts += self._close_text(_FINISH[ending.status])
        for tool in self._tools:
            reason = UNFINISHED_TOOL[ending.status]
            drafts.append(self._tool_result(tool, content=reason, error=reason))
        server = metadata("server", self._trace_id, **self._marks)
        if ending.status != "completed":
            error = {"error": ending.message, "code": ending.code, "recoverable": ending.is_recoverable}
            drafts.append(self._draft("error", error, server))
        end: dict[str, Any] = {
            "turnId": self.turn_id,
            "status": ending.status,
            "elapsedMs": max(0, self._clock() - self._began),
        }
        if ending.data is not ABSENT:
            end["data"] = ending.data
        if ending.question:
            end |= {"code": ending.code, "question": ending.question}
        drafts.append(self._draft("agent_run_end", end, marks))
        return drafts

    def recall(self, events: Iterable[Envelope]) -> None:
        """Remember what the turn's stored events (all of them, oldest first) say is open."""
        for event in events:
            data = decode(event.data)
            match event.type:
                case "user_message":
                    self._began = self._asked = event.timestamp
                case "assistant_message_start":
                    self._resume(data["messageId"], event.timestamp)
                    self._text = bytearray()
                case "assistant_message_delta" if self._text is not None:
                    self._text += encode_text(data["delta"])[1:-1]
                case "assistant_message":
                    self._text = None
                case "assistant_thinking_delta":
                    self._recall_thinking(event, data)
                case "assistant_thinking_message":
                    self._thinking = None
                case "tool_call":
                    self._resume(data["messageId"], event.timestamp)
                    self._leave()
                    self._tools.add(
                        RunningTool(data["id"], data["id"], data["name"], event.timestamp, event.metadata)
                    )
                case "tool_result":
                    self._forget_tool(data["toolCallId"])
                    self._asked = event.timestamp
                case _:
                    pass

    def _recall_thinking(self, event: Envelope, data: dict[str, Any]) -> None:
        self._resume(data["messageId"], event.timestamp)
        if self._thinking is None:
            self._thinking = bytearray()
            self._thinking_began = event.timestamp
        self._thinking += encode_text(data["delta"])[1:-1]

    def _resume(self, message_id: str, at: int) -> None:
        """Open a stored segment, or go on with it: its id ends with its number."""
        number = int(message_id.rpartition("_")[2])
        answered = self._answered if number == self._segments else at
        self._segments = number - 1
        self._message_id = ""
        self._enter()
        self._answered = answered

    # ── text and thinking ────────────────────────────────────────────────────────────────────────────────────────

    def _take_text(self, event: AgentEvent) -> list[Draft]:
        delta = event.get("delta")
        if type(delta) is not str:
            raise _wrong_shape("text", "delta", "a string", delta)
        if not delta:
            return []
        encoded = encode_text(delta)
        self._grow(len(encoded))
        if self._text is not None and self._thinking is None:
            self._text += encoded[1:-1]
            return [self._delta("assistant_message_delta", encoded)]
        drafts = self._close_thinking()
        if self._text is None:
            drafts += self._open_text()
        assert self._text is not None  # noqa: S101 - opened one line above
        self._text += encoded[1:-1]
        drafts.append(self._delta("assistant_message_delta", encoded))
        return drafts

    def _take_thinking(self, event: AgentEvent) -> list[Draft]:
        delta = event.get("delta")
        if type(delta) is not str:
            raise _wrong_shape("thinking", "delta", "a string", delta)
        if not delta:
            return []
        encoded = encode_text(delta)
        self._grow(len(encoded))
        if self._thinking is None:
            self._enter()
            self._thinking = bytearray()
            self._thinking_began = self._clock()
        self._thinking += encoded[1:-1]
        return [self._delta("assistant_thinking_delta", encoded)]

    def _delta(self, event_type: str, encoded: bytes) -> Draft:
        data = b'{"delta":' + encoded + self._delta_tail
        # What `Draft` makes, in a third of the time: this runs for every delta.
        return tuple.__new__(Draft, (event_type, self._clock(), data, self._metadata, False))

    def _grow(self, size: int) -> None:
        """Count a delta, `size` bytes with its quotes: a closing message repeats it without them."""
        if size > self._max_event:
            raise BadEvent(f"an event may have {self._max_event} bytes, not {size}", code="event_too_large")
        said = self._said + size - 2
        if said > self._max_turn:
            raise BadEvent(f"a turn may say {self._max_turn} bytes", code="turn_too_large")
        self._said = said

    def _enter(self) -> None:
        """Open a segment, unless one is open."""
        if not self._message_id:
            self._segments += 1
            self._answered = self._clock()
            self._message_id = f"msg_{self.turn_id.removeprefix('turn_')}_{self._segments}"
            self._tools_message_id = ""
            self._delta_tail = b',"messageId":"' + self._message_id.encode() + b'"}'

    def _leave(self) -> None:
        """Close the segment to text; tools that start before it ends still belong to it."""
        self._tools_message_id = self._message_id or self._tools_message_id
        self._message_id = ""

    def _open_text(self) -> list[Draft]:
        self._enter()
        self._text = bytearray()
        return [
            self._draft("assistant_message_start", {"role": "assistant", "messageId": self._message_id}),
        ]

    def _close_text(self, finish: FinishReason) -> list[Draft]:
        if self._text is None:
            return []
        text, self._text = self._text, None
        rest = {"role": "assistant", "finishReason": finish, "messageId": self._message_id}
        marks = self._timing() if text else self._metadata
        return [Draft("assistant_message", self._clock(), _closing(text, rest), marks)]

    def _timing(self) -> bytes:
        """Metadata with the milliseconds from the last thing said to the agent to the segment's first and last piece."""
        first, last = max(0, self._answered - self._asked), max(0, self._clock() - self._asked)
        return metadata("agent", self._trace_id, ttftMs=first, ttltMs=last, **self._marks)

    def _close_thinking(self) -> list[Draft]:
        if self._thinking is None:
            return []
        text, self._thinking = self._thinking, None
        duration = max(0, self._clock() - self._thinking_began)
        rest = {"durationMs": duration, "messageId": self._message_id}
        return [Draft("assistant_thinking_message", self._clock(), _closing(text, rest), self._metadata)]

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_tool_started(self, event: AgentEvent) -> list[Draft]:
        agent_id, name = event.get("id"), event.get("name")
        if not isinstance(agent_id, str):
            raise _wrong_shape("tool_started", "id", "a string", agent_id)
        if not isinstance(name, str):
            raise _wrong_shape("tool_started", "name", "a string", name)
        _, drafts = self._start_tool(agent_id, name, event.get("args"))
        return drafts

    def _start_tool(self, agent_id: str, name: str, args: Any) -> tuple[RunningTool, list[Draft]]:
        arguments = args if isinstance(args, dict) else {} if args is None else {"value": args}
        self._check_size({"id": agent_id, "name": name, "arguments": arguments})
        drafts = self._close_thinking()
        drafts += self._close_text("tool_calls")
        if self._message_id:
            self._leave()
        if not self._tools_message_id:
            self._enter()
            self._leave()
        message_id = self._tools_message_id
        wire_id = self._tools.unused_id(agent_id)
        marks = self._metadata
        if wire_id != agent_id:
            marks = metadata("agent", self._trace_id, toolCallId=agent_id, **self._marks)
        tool = RunningTool(wire_id, agent_id, name, self._clock(), marks)
        self._tools.add(tool)
        call = {
            "id": tool.id,
            "name": name,
            "arguments": arguments,
            "type": "function",
            "messageId": message_id,
        }
        drafts.append(self._draft("tool_call", call, marks))
        drafts.append(self._draft("tool_execution_start", {"toolCallId": tool.id, "name": name}, marks))
        return tool, drafts

    def _take_tool_ended(self, event: AgentEvent) -> list[Draft]:
        agent_id, is_error = event.get("id"), event.get("isError", False)
        if not isinstance(agent_id, str):
            raise _wrong_shape("tool_ended", "id", "a string", agent_id)
        if not isinstance(is_error, bool):
            raise _wrong_shape("tool_ended", "isError", "true or false", is_error)
        content = event.get("content")
        text = content if isinstance(content, str) else encode(content).decode()
        error = (text or "error") if is_error else None
        raw = None if isinstance(content, str) else content
        tool = self._tools.called(agent_id)
        name = UNKNOWN_TOOL if tool is None else tool.name
        self._check_size({"id": agent_id, "name": name, "content": text, "error": error, "rawContent": raw})
        drafts: list[Draft] = []
        if tool is None:
            tool, drafts = self._start_tool(agent_id, name, None)
        drafts.append(self._tool_result(tool, content=text, error=error, raw=content))
        return drafts

    def _forget_tool(self, wire_id: str) -> None:
        self._tools.remove(wire_id)
        if self._message_id == "" and not self._tools:
            self._tools_message_id = ""

    def _tool_result(self, tool: RunningTool, *, content: str, error: str | None, raw: Any = "") -> Draft:
        self._forget_tool(tool.id)
        self._asked = self._clock()
        result: dict[str, Any] = {
            "toolCallId": tool.id,
            "name": tool.name,
            "content": content,
            "success": error is None,
            "elapsedMs": max(0, self._clock() - tool.began),
        }
        if error is not None:
            result["error"] = error
        if not isinstance(raw, str):
            result["rawContent"] = raw
        return self._draft("tool_result", result, tool.metadata)

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_question(self, event: AgentEvent) -> list[Draft]:
        question = event.get("text")
        if not isinstance(question, str) or not question.strip():
            raise _wrong_shape("input_required", "text", "a text that is not empty", question)
        drafts = [self._pass_through(event)]
        self.question = question
        return drafts

    # ── everything else ──────────────────────────────────────────────────────────────────────────────────────────

    def _pass_through(self, event: AgentEvent) -> Draft:
        event_type = event["type"]
        if not is_event_type(event_type):
            raise BadEvent(f"an event type is 1 to 200 printable characters, not {event_type[:80]!r}")
        if event_type in RESERVED:
            event_type = f"agent.{event_type}"
        return self._draft(event_type, self._check_size({key: event[key] for key in event if key != "type"}))

    def _check_size(self, data: Any) -> Any:
        size = len(encode(data))
        if size > self._max_event:
            raise BadEvent(f"an event may have {self._max_event} bytes, not {size}", code="event_too_large")
        return data

    def _draft(self, event_type: str, data: Any, marks: bytes | None = None) -> Draft:
        return Draft(event_type, self._clock(), encode(data), marks or self._metadata)


def _closing(text: bytearray, rest: dict[str, Any]) -> bytes:
    """The data of a message that closes a stretch of deltas, from their encoded text: a long one is copied once."""
    return b"".join((b'{"content":"', text, b'",', encode(rest)[1:]))


def _wrong_shape(event_type: str, key: str, expected: str, found: Any) -> BadEvent:
    return BadEvent(f"{event_type}.{key} must be {expected}, not {type(found).__name__}")
