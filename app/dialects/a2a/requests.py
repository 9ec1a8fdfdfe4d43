"""What callers send, checked by the SDK's own types and read into ours. Pure.

Both versions come to one endpoint and are told apart by the method's name; the `A2A-Version` header (0.3 when there is
none) must agree with it. Whatever is wrong with a call is one of the SDK's errors, and nothing was done then.

Source: JSON-RPC 2.0; A2A specification 1.0.1, chapters 3 and 9; 0.3.0, chapter 7.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any, TypeAlias

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage
from pydantic import BaseModel, ValidationError

from app.dialects.a2a.spelling import Version
from app.events.canonical import MAX_BODY_DEPTH, NotJson, decode, is_deeper

MAX_ID = 128
MAX_MESSAGE_ID = 256
MAX_PAGE = 100
DEFAULT_PAGE = 50

_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_ID}}}")
_VERSIONS: tuple[tuple[re.Pattern[str], Version], ...] = (
    (re.compile(r"1(\.\d+){0,2}"), "1.0"),
    (re.compile(r"0\.3(\.\d+)?"), "0.3"),
)


@dataclass(frozen=True, slots=True)
class Send:
    """A message. `content` is a text, or Tarko's content parts; `marks` is what is kept with it in the log."""

    content: str | list[dict[str, Any]]
    message_id: str
    context_id: str
    task_id: str
    marks: Mapping[str, Any]
    streams: bool
    waits: bool
    history: int | None


@dataclass(frozen=True, slots=True)
class Get:
    """A task is asked for, with its last `history` messages (None: all)."""

    task_id: str
    history: int | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A task is to be canceled."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A task is to be followed."""

    task_id: str


@dataclass(frozen=True, slots=True)
class ListTasks:
    """A page of tasks. `since` is epoch milliseconds; `state` is a state's number in the protocol, 0 for any."""

    context_id: str
    state: int
    size: int
    token: str
    history: int | None
    artifacts: bool
    since: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A method that the protocol has and this server does not; the fault says so."""

    fault: A2AError


Operation: TypeAlias = Send | Get | Cancel | Subscribe | ListTasks | Refused


@dataclass(frozen=True, slots=True)
class Call:
    """A call that can be answered: its id, its version, whether the answer is a stream, and the parameters."""

    id: str | int
    version: Version
    is_stream: bool
    method: str
    params: dict[str, Any]


class NoCall(Exception):
    """Not a call that can be carried out. Attributes: the `fault`, the call's `id` if it has one, and its `version`."""

    def __init__(
        self, fault: A2AError, request_id: str | int | None = None, version: Version = "0.3"
    ) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.id = request_id
        self.version = version


_NO_PUSH = PushNotificationNotSupportedError(
    "This server sends no push notifications: subscribe to the task."
)
_NO_CARD = "There is no card but the public one."

METHODS: dict[str, Version] = {
    "SendMessage": "1.0",
    "SendStreamingMessage": "1.0",
    "GetTask": "1.0",
    "ListTasks": "1.0",
    "CancelTask": "1.0",
    "SubscribeToTask": "1.0",
    "GetExtendedAgentCard": "1.0",
    "CreateTaskPushNotificationConfig": "1.0",
    "GetTaskPushNotificationConfig": "1.0",
    "ListTaskPushNotificationConfigs": "1.0",
    "DeleteTaskPushNotificationConfig": "1.0",
    "message/send": "0.3",
    "message/stream": "0.3",
    "tasks/get": "0.3",
    "tasks/cancel": "0.3",
    "tasks/resubscribe": "0.3",
    "agent/getAuthenticatedExtendedCard": "0.3",
    "tasks/pushNotificationConfig/set": "0.3",
    "tasks/pushNotificationConfig/get": "0.3",
    "tasks/pushNotificationConfig/list": "0.3",
    "tasks/pushNotificationConfig/delete": "0.3",
}
STREAMS = frozenset({"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe"})


def call_of(body: bytes, version_header: str) -> Call:
    """The call that a request's body is. Raises `NoCall`."""
    asked = version_of(version_header)
    told = asked or "1.0"
    try:
        call = decode(body)
    except NotJson as error:
        raise NoCall(JSONParseError(f"The body is not JSON: {str(error)[:200]}."), version=told) from error
    if is_deeper(call, MAX_BODY_DEPTH):
        raise NoCall(JSONParseError(f"The body is nested deeper than {MAX_BODY_DEPTH} levels."), version=told)
    if not isinstance(call, dict):
        raise NoCall(InvalidRequestError("A call is one JSON object; batches are not taken."), version=told)
    request_id = call.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise NoCall(InvalidRequestError("`id` must be a text or a whole number."), version=told)
    method, params = call.get("method"), call.get("params", {})
    if call.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise NoCall(
            InvalidRequestError('A call has `"jsonrpc": "2.0"` and the name of a `method`.'), request_id, told
        )
    if asked is None:
        raise NoCall(_other_version(version_header), request_id, told)
    version = METHODS.get(method)
    if version is None:
        raise NoCall(MethodNotFoundError(f"There is no method {method[:80]!r}."), request_id, asked)
    if version != asked:
        raise NoCall(_other_version(version_header, method, version), request_id, version)
    if not isinstance(params, dict):
        raise NoCall(InvalidParamsError("`params` must be an object."), request_id, version)
    return Call(request_id, version, method in STREAMS, method, params)


def version_of(header: str) -> Version | None:
    """The version that an `A2A-Version` header asks for; None for one that is not spoken here."""
    if not header.strip():
        return "0.3"
    return next((version for form, version in _VERSIONS if form.fullmatch(header.strip())), None)


def _other_version(header: str, method: str = "", version: Version = "1.0") -> A2AError:
    if not method:
        return VersionNotSupportedError(f"A2A {header[:40]!r} is not spoken here: 1.0 and 0.3 are.")
    return VersionNotSupportedError(
        f"{method} is a method of A2A {version}; the A2A-Version header says {header[:40] or '0.3 (it is missing)'}."
    )


def operation_of(call: Call, trace: Mapping[str, str]) -> Operation:
    """What the call asks for. `trace` are its W3C trace headers. Raises one of the SDK's errors."""
    match call.method:
        case "SendMessage" | "SendStreamingMessage":
            return _send(call, _parsed(call, pb.SendMessageRequest()), trace)
        case "message/send" | "message/stream":
            request = _validated(call, v03.SendMessageRequest, method="message/send")
            return _send(call, _converted(conversions.to_core_send_message_request, request), trace)
        case "GetTask":
            get = _parsed(call, pb.GetTaskRequest())
            return Get(_task_id(get.id), _history(get))
        case "tasks/get":
            query = _validated(call, v03.GetTaskRequest).params
            return Get(_task_id(query.id), _not_negative(query.history_length or None))
        case "CancelTask":
            return Cancel(_task_id(_parsed(call, pb.CancelTaskRequest()).id))
        case "tasks/cancel":
            return Cancel(_task_id(_validated(call, v03.CancelTaskRequest).params.id))
        case "SubscribeToTask":
            return Subscribe(_task_id(_parsed(call, pb.SubscribeToTaskRequest()).id))
        case "tasks/resubscribe":
            return Subscribe(_task_id(_validated(call, v03.TaskResubscriptionRequest).params.id))
        case "ListTasks":
            return _list(_parsed(call, pb.ListTasksRequest()), call.params.get("status"))
        case _:
            return Refused(_refusal(call.method))


def _refusal(method: str) -> A2AError:
    if method == "GetExtendedAgentCard":
        return UnsupportedOperationError(_NO_CARD)
    if method == "agent/getAuthenticatedExtendedCard":
        return ExtendedAgentCardNotConfiguredError(_NO_CARD)
    return _NO_PUSH


def _send(call: Call, request: pb.SendMessageRequest, trace: Mapping[str, str]) -> Send:
    message, configuration = request.message, request.configuration
    validate_proto_required_fields(request)
    if message.role != pb.Role.ROLE_USER:
        raise InvalidParamsError("`message.role` must be that of the user.")
    if len(message.message_id) > MAX_MESSAGE_ID or "\0" in message.message_id:
        raise InvalidParamsError(f"`message.messageId` has 1 to {MAX_MESSAGE_ID} characters.")
    if configuration.HasField("task_push_notification_config"):
        raise _NO_PUSH
    return Send(
        content=_content(message),
        message_id=message.message_id,
        context_id=_id(message.context_id, "message.contextId") if message.context_id else "",
        task_id=_task_id(message.task_id) if message.task_id else "",
        marks=_marks(call.params["message"], message.message_id, trace),
        streams=call.is_stream,
        waits=not configuration.return_immediately,
        history=_history(configuration),
    )


def _marks(message: dict[str, Any], message_id: str, trace: Mapping[str, str]) -> dict[str, Any]:
    """What the log keeps of the message beside its content: read from the JSON, since protobuf's numbers are floats."""
    marks: dict[str, Any] = {"messageId": message_id, **trace}
    if message.get("metadata"):
        marks["metadata"] = message["metadata"]
    return marks


def _content(message: pb.Message) -> str | list[dict[str, Any]]:
    parts = [_part(part, index) for index, part in enumerate(message.parts)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _part(part: pb.Part, index: int) -> dict[str, Any]:
    match part.WhichOneof("content"):
        case "text":
            return {"type": "text", "text": part.text}
        case "raw" if part.media_type.startswith("image/") and part.raw:
            data = b64encode(part.raw).decode()
            return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}
        case None:
            raise InvalidParamsError(f"Part {index} of the message is empty.")
        case kind:
            raise ContentTypeNotSupportedError(
                f"Part {index} of the message is {kind} ({part.media_type[:80] or 'no media type'}): this server takes "
                "text, and images by value."
            )


def _list(request: pb.ListTasksRequest, asked: Any) -> ListTasks:
    size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE
    if not 1 <= size <= MAX_PAGE:
        raise InvalidParamsError(f"`pageSize` is 1 to {MAX_PAGE}.")
    # What it does not know, the SDK takes for absent, and so for any state.
    if not request.status and asked not in (None, 0, "TASK_STATE_UNSPECIFIED"):
        raise InvalidParamsError("`status` is the name of a task's state.")
    since = None
    if request.HasField("status_timestamp_after"):
        moment = request.status_timestamp_after.ToDatetime(UTC)
        since = round(moment.timestamp() * 1000)
    return ListTasks(
        context_id=_id(request.context_id, "contextId") if request.context_id else "",
        state=request.status,
        size=size,
        token=request.page_token,
        history=_history(request),
        artifacts=request.include_artifacts,
        since=since,
    )


def _parsed(call: Call, into: Any) -> Any:
    """The parameters as 1.0 has them."""
    try:
        return ParseDict(call.params, into, ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidParamsError(
            f"The parameters are not those of {call.method}: {str(error)[:300]}"
        ) from error


def _validated(call: Call, model: type[Any], method: str | None = None) -> Any:
    """The parameters as 0.3 has them."""
    body = {"jsonrpc": "2.0", "id": call.id, "method": method or call.method, "params": call.params}
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()[:3]
        )
        raise InvalidParamsError(
            f"The parameters are not those of {call.method}: {problems[:300]}"
        ) from error


def _converted(convert: Any, request: BaseModel) -> Any:
    try:
        converted: ProtoMessage = convert(request)
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise InvalidParamsError(f"The message can't be read: {str(error)[:300]}") from error
    return converted


def _history(request: Any) -> int | None:
    return _not_negative(request.history_length) if request.HasField("history_length") else None


def _not_negative(length: int | None) -> int | None:
    if length is not None and length < 0:
        raise InvalidParamsError("`historyLength` is 0 or more.")
    return length


def _task_id(task_id: str) -> str:
    if not task_id:
        raise InvalidParamsError("The task's id is missing.")
    return task_id


def _id(value: str, name: str) -> str:
    if not _ID.fullmatch(value):
        raise InvalidParamsError(f"`{name}` has 1 to {MAX_ID} visible ASCII characters.")
    return value


def page_token(updated_at: int, task_id: str) -> str:
    """The token of the page after this task."""
    return f"{updated_at}.{task_id}"


def page_place(token: str) -> tuple[int, str] | None:
    """Where the page of this token begins; None without one. Raises `InvalidParamsError` for one of another make."""
    if not token:
        return None
    updated_at, _, task_id = token.partition(".")
    if not (
        updated_at.isascii() and updated_at.isdigit() and len(updated_at) < 16 and _ID.fullmatch(task_id)
    ):
        raise InvalidParamsError("`pageToken` is the `nextPageToken` of an earlier page.")
    return int(updated_at), task_id
