"""What clients send and get, field by field. Unknown fields are ignored, wrong ones are a 400."""

import re
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PREFIX = "/ui/api/v1"
MAX_LABEL = 200

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def tidy(text: str) -> str:
    """A label of what was sent as one. The UI cuts a name out of the user's message, line ends and half characters included."""
    return _UNPRINTABLE.sub(" ", text).strip()[:MAX_LABEL]


Label = Annotated[str, AfterValidator(tidy)]
Labels = Annotated[list[Label], Field(max_length=100)]
SessionId = Annotated[str, Field(max_length=200, examples=["sess_agpzhxv4lz5czmzoyw3zw2h5ge"])]
SessionParam = Annotated[str, Query(alias="sessionId", max_length=200)]
QueryContent = Annotated[
    str | list[dict[str, Any]],
    Field(
        description="Text, or content parts: `text` and `image_url` with a data URL.",
        examples=["Hello, how can you help?"],
    ),
]


class FlatMessage(BaseModel):
    """A request's body."""

    model_config = ConfigDict(strict=True)


class OfSession(FlatMessage):
    """A request that only names a session."""

    sessionId: SessionId


class FlatMetadata(FlatMessage):
    """What clients keep with a session: its name, its tags, anything else."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Label | None = None
    tags: Labels | None = None


class FlatUpdate(OfSession):
    """A change: fields of `metadata`, merged into the session's; `name` and `tags` also on top."""

    name: Label | None = None
    tags: Labels | None = None
    metadata: FlatMetadata = Field(default_factory=FlatMetadata)


class FlatQuery(OfSession):
    """Starts a turn."""

    query: QueryContent


class FlatOneShot(FlatMessage):
    """Creates a session and starts a turn in it."""

    query: QueryContent
    sessionName: Label | None = None
    sessionTags: Labels = Field(default_factory=list)


class ShareRequest(OfSession):
    """Asks for a page that plays the session back."""

    upload: bool = False


class SummaryRequest(OfSession):
    """Asks for a conversation's title. `model` and `provider` are given back as they came."""

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=10_000)
    model: str | None = None
    provider: str | None = None


class FlatSession(BaseModel):
    """A session. Times are epoch milliseconds; `metadata` has its name, tags and agent, and what clients keep there."""

    id: SessionId
    createdAt: int
    updatedAt: int
    workspace: str
    metadata: dict[str, Any]


class FlatSessions(BaseModel):
    """The caller's sessions, the one changed last first."""

    sessions: list[FlatSession]


class FlatDetails(BaseModel):
    """One session."""

    session: FlatSession


class FlatEvent(BaseModel):
    """An event with its fields beside its type. `timestamp` is epoch milliseconds."""

    model_config = ConfigDict(extra="allow")

    id: str
    type: str
    timestamp: int


class FlatCreated(FlatDetails):
    """The new session. `events` are those of its beginning: none."""

    sessionId: SessionId
    events: list[FlatEvent]


class FlatEvents(BaseModel):
    """All events of a session, oldest first; of the turn that runs, what it has said so far."""

    events: list[FlatEvent]


class LatestSession(FlatEvents):
    """The session that was changed last, with its events."""

    sessionId: SessionId
    sessionInfo: FlatSession


class FlatTurnStatus(BaseModel):
    """Whether a turn runs or waits."""

    isProcessing: bool
    state: Literal["idle", "executing"]


class FlatStatus(BaseModel):
    """A session's state."""

    sessionId: SessionId
    status: FlatTurnStatus


class FlatDone(BaseModel):
    """It is done."""

    success: Literal[True] = True


class FlatResult(BaseModel):
    """The turn's last message. `finishReason` is `error` or `abort` when it did not complete."""

    result: FlatEvent


class FlatOneShotResult(FlatResult):
    """The same, with the session that was made."""

    sessionId: SessionId


class Summary(BaseModel):
    """A title."""

    summary: str
    model: str | None
    provider: str | None


class Shared(BaseModel):
    """A page of its own that plays the session back."""

    success: Literal[True] = True
    sessionId: SessionId
    html: str


class ShareConfig(BaseModel):
    """Where pages could be uploaded to: nowhere."""

    hasShareProvider: bool
    shareProvider: str | None


class FlatHealth(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class FlatVersion(BaseModel):
    """The server's version. `buildTime` is epoch milliseconds."""

    version: str
    buildTime: int
    gitHash: str
