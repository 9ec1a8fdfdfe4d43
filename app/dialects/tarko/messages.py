"""What clients send and get, field by field. Unknown fields are ignored, wrong ones are a 400."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.events.vocabulary import MAX_TYPE_LENGTH


def _printable(text: str) -> str:
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in text):
        raise ValueError("control characters are not allowed")
    return text


Label = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
SessionId = Annotated[str, Field(max_length=200, examples=["sess_agpzhxv4lz5czmzoyw3zw2h5ge"])]
Parts = list[dict[str, Any]]
QueryContent = Annotated[
    str | Parts,
    Field(
        description="Text, or content parts: `text` and `image_url` with a data URL.",
        examples=["Hello, how can you help?"],
    ),
]


class Message(BaseModel):
    """A request's body."""

    model_config = ConfigDict(strict=True)


class CreateSession(Message):
    """A new session."""

    name: Label | None = Field(None, examples=["My Session"])
    tags: list[Label] = Field(default_factory=list, max_length=100, examples=[["tag1", "tag2"]])
    agent: Label | None = Field(None, description="Which agent; the server's default if left out.")


class UpdateSession(Message):
    """A change: top-level fields or those of `metadata`, merged into the session. What is left out stays."""

    sessionId: SessionId
    name: Label | None = None
    tags: list[Label] | None = Field(None, max_length=100)
    metadata: dict[str, Any] | None = None


class NamedSession(Message):
    """A request that only names a session."""

    sessionId: SessionId


class TurnOptions(Message):
    """How a turn is run."""

    onBusy: Literal["reject", "queue", "interrupt"] | None = Field(
        None,
        description="While another turn runs: 409; or wait behind it; or abort it and run next. "
        "Left out: the server's setting.",
    )
    onDisconnect: Literal["continue", "abort"] = Field(
        "continue", description="What becomes of the turn when this client hangs up."
    )
    timeoutMs: int | None = Field(None, gt=0, le=7 * 86_400_000, description="Deadline of the whole turn.")
    silenceTimeoutMs: int | None = Field(
        None, gt=0, le=7 * 86_400_000, description="How long the agent may say nothing."
    )


class QuerySession(TurnOptions):
    """Starts a turn."""

    sessionId: SessionId
    query: QueryContent


class OneShot(TurnOptions):
    """Creates a session and starts a turn in it."""

    query: QueryContent
    sessionName: Label | None = None
    sessionTags: list[Label] = Field(default_factory=list, max_length=100)
    agent: Label | None = None


class AbortQuery(Message):
    """Stops the running turn, or the named one only."""

    sessionId: SessionId
    turnId: Annotated[str, Field(max_length=200)] | None = None


class ClientEvent(Message):
    """An event of the client's own, such as `user_feedback`."""

    sessionId: SessionId
    type: Annotated[str, Field(min_length=1, max_length=MAX_TYPE_LENGTH, examples=["user_feedback"])]
    data: Any = Field(None, examples=[{"rating": 5, "comment": "helpful"}])


class Created(BaseModel):
    """The new session."""

    sessionId: SessionId
    createdAt: int = Field(description="Epoch milliseconds.", examples=[1622548800000])


class EventEnvelope(BaseModel):
    """An event of the log."""

    id: str = Field(examples=["evt_agpzhxv4lz5czmzoyw3zw2h5ge_1"])
    type: str = Field(examples=["user_message"])
    timestamp: int = Field(description="Epoch milliseconds.")
    sessionId: SessionId
    data: Any
    metadata: dict[str, Any]


class Answer(BaseModel):
    """A turn that completed or was aborted: all its text, and its lasting events."""

    response: str
    events: list[EventEnvelope]
    status: Literal["completed", "aborted"]
    turnId: str


class OneShotAnswer(Answer):
    """The same, with the session that was made."""

    sessionId: SessionId


class Events(BaseModel):
    """A page of the log. `total` counts the session's lasting events."""

    events: list[EventEnvelope]
    total: int
    hasMore: bool
    nextAfter: str | None = Field(None, description="Cursor of the next page, oldest first.")
    nextBefore: str | None = Field(None, description="Cursor of the next page, newest first.")


class TurnStatus(BaseModel):
    """Whether a turn runs and how many wait, true when it is read."""

    isProcessing: bool
    state: Literal["idle", "executing"]
    turnId: str | None = None
    queued: int
    lastEnding: Literal["completed", "failed", "aborted", "interrupted"] | None = Field(
        None, description="How the turn ended that ended last."
    )


class WaitingTurn(BaseModel):
    """A turn that waits. `acceptedAt` is epoch milliseconds; position 1 is next."""

    turnId: str
    position: int
    acceptedAt: int
    query: QueryContent


class Queue(BaseModel):
    """A session's queue: the turn that runs, and those that wait."""

    sessionId: SessionId
    running: str | None
    queue: list[WaitingTurn]


class SessionStatus(BaseModel):
    """A session's state."""

    sessionId: SessionId
    status: TurnStatus


class SessionItem(BaseModel):
    """A session. `metadata` is what clients keep with it. Times are epoch milliseconds."""

    id: SessionId
    createdAt: int
    updatedAt: int
    name: str | None
    tags: list[str]
    agent: str
    metadata: dict[str, Any]
    status: TurnStatus
    lastEventId: str


class SessionDetails(BaseModel):
    """One session."""

    session: SessionItem


class SessionList(BaseModel):
    """A page of sessions, newest first. `nextAfter` is there when there are more."""

    sessions: list[SessionItem]
    nextAfter: str | None = None


class AbortReceipt(BaseModel):
    """`success`: this request ended the turn. Otherwise nothing ran, or the turn had ended as `status` says."""

    success: bool
    turnId: str | None = None
    status: Literal["completed", "failed", "aborted", "interrupted", "removed"] | None = None
    lastEventId: str | None = None


class Appended(BaseModel):
    """Where the event is."""

    id: str


class Done(BaseModel):
    """It is done."""

    success: Literal[True] = True


class Refusal(BaseModel):
    """Why a request was not done. Programs branch on `code`."""

    error: str = Field(examples=["There is no session 'sess_x'."])
    code: str = Field(examples=["session_not_found"])
    details: dict[str, Any] | None = None
