"""What clients send and get, field by field. Unknown fields are ignored, wrong ones are a 400."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

PREFIX = "/ui/api/v1"

SessionId = Annotated[str, Field(max_length=200, examples=["sess_agpzhxv4lz5czmzoyw3zw2h5ge"])]
SessionParam = Annotated[str, Query(alias="sessionId", max_length=200)]


class Message(BaseModel):
    """A request's body."""

    model_config = ConfigDict(strict=True)


class NamedSession(Message):
    """A request that only names a session."""

    sessionId: SessionId


class SessionInfo(BaseModel):
    """A session. Times are epoch milliseconds; `metadata` has its name, tags and agent, and what clients keep there."""

    id: SessionId
    createdAt: int
    updatedAt: int
    workspace: str
    metadata: dict[str, Any]


class SessionDetails(BaseModel):
    """One session."""

    session: SessionInfo
