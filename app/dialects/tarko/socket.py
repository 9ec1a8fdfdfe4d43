"""The conversation on `/ws`, without the socket: what a client's text asks for, and how answers are spelled.

The documented commands are `join_session`, `send_query` and `abort_query`; `leave_session` and `ping` are ours. Any
command may carry a `requestId`, which its answer names. A message that can't be understood is answered, never punished
by closing the socket.
"""

from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.dialects.tarko.messages import QueryContent, SessionId, TurnOptions
from app.dialects.tarko.nested import spell_control
from app.errors import TarkoError
from app.events.canonical import NotJson, decode, encode
from app.events.envelope import now_ms
from app.events.ids import event_id


class _Command(BaseModel):
    model_config = ConfigDict(strict=True)

    requestId: Annotated[str, Field(max_length=200)] | None = None  # noqa: N815 - the protocol's own name


class OfSession(_Command):
    """A command about one session."""

    type: Any
    sessionId: SessionId  # noqa: N815 - the protocol's own name


class JoinSession(OfSession):
    """Follow a session: after a cursor; else from its start; or from now on."""

    type: Literal["join_session"]
    after: str | int | None = None
    from_: Annotated[Literal["start", "now"] | None, Field(alias="from")] = None


class SendQuery(OfSession, TurnOptions):
    """Start a turn; joins the session."""

    type: Literal["send_query"]
    query: QueryContent
    idempotencyKey: Annotated[str, Field(max_length=200, pattern=r"^[\x21-\x7e]+$")] | None = None  # noqa: N815


class AbortQuery(OfSession):
    """Stop the running turn, or the named one only."""

    type: Literal["abort_query"]
    turnId: str | None = None  # noqa: N815 - the protocol's own name


class LeaveSession(OfSession):
    """Stop following a session."""

    type: Literal["leave_session"]


class Ping(_Command):
    """Ask for a `pong`."""

    type: Literal["ping"]


Command = JoinSession | SendQuery | AbortQuery | LeaveSession | Ping

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="type")])


@dataclass(frozen=True, slots=True)
class Misunderstood:
    """A message that is no command: what is said of it, and of which session, if it names one."""

    code: str
    error: str
    session_id: str | None = None
    details: dict[str, Any] | None = None


def understand(text: str | bytes) -> Command | Misunderstood:
    """The command that a message is."""
    try:
        message = decode(text)
    except NotJson as error:
        return Misunderstood("bad_json", f"The message is not JSON: {str(error)[:200]}.")
    if not isinstance(message, dict):
        return Misunderstood("bad_message", "A message is a JSON object with a `type`.")
    kind, session_id, request_id = (message.get(key) for key in ("type", "sessionId", "requestId"))
    try:
        return _COMMAND.validate_python(message)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(step) for step in problem["loc"][1:]) or "type"
        is_known = problem["type"] != "union_tag_invalid"
        return Misunderstood(
            "bad_message" if is_known else "unknown_type",
            f"{where}: {problem['msg']}."
            if is_known
            else "The type is one of join_session, send_query, abort_query, leave_session, ping.",
            session_id if isinstance(session_id, str) else None,
            _names(kind, request_id),
        )


def refusal(command: OfSession, error: TarkoError) -> Misunderstood:
    """What is said of a command that could not be done."""
    details = _names(command.type, command.requestId) | (error.details or {})
    return Misunderstood(error.code, str(error), command.sessionId, details)


class Answers:
    """Spells a socket's answers. Their ids are cursors of the place they are sent at, and differ from each other."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def spell(
        self, event_type: str, data: dict[str, Any], session_id: str | None = None, place: int = 0
    ) -> bytes:
        """An answer; `place` is the last place that the client was sent of the session."""
        number = next(self._numbers)
        answer_id = f"ctl_{number}" if session_id is None else f"{event_id(session_id, place)}~{number}"
        return spell_control(
            event_id=answer_id,
            event_type=event_type,
            timestamp=now_ms(),
            session_id=session_id,
            data=encode(data),
        )


def error_data(problem: Misunderstood) -> dict[str, Any]:
    """The data of an `error` answer."""
    data = {"error": problem.error, "code": problem.code, "recoverable": True}
    return data | ({"details": problem.details} if problem.details else {})


def _names(kind: Any, request_id: Any) -> dict[str, Any]:
    named = {"requestType": kind, "requestId": request_id}
    return {key: value[:200] for key, value in named.items() if isinstance(value, str)}
