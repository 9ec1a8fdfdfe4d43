"""`GET /api/v1/overview`: which server this is and to whom, who else serves the database, and how it is set up.

Anybody who may come in may read it, so no value that lets somebody in anywhere, or that may hold one, is told: of such
settings only whether they are set.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from app import __version__
from app.access.caller import principal_of
from app.settings import Settings

_MAX_VALUE = 300
_HIDDEN = frozenset(
    {"tokens", "database_url", "openai_base_url", "openai_system_prompt", "agent", "middleware"}
)
"""Settings that may hold a secret beside what they say; those with `repr=False` are secrets."""


class Sign(NamedTuple):
    """A sign of life of a process that serves this database: whose, and how many seconds ago by the database's clock."""

    replica_id: str
    age: float


class Replica(BaseModel):
    """A process that serves the same database."""

    id: str
    beatAgeMs: int = Field(description="Milliseconds since its last sign of life.")
    isThis: bool


class Setting(BaseModel):
    """A setting by its name in the environment. Of one that may hold a secret `value` says only whether it is set."""

    name: str
    value: str
    description: str
    isDefault: bool


class Overview(BaseModel):
    """The server, as its console shows it."""

    principal: str | None = Field(description="Who asks, by their token; null when no token is asked for.")
    version: str
    agents: list[str]
    replicas: list[Replica]
    settings: list[Setting]


def router(
    settings: Settings,
    agents: Sequence[str],
    replica_id: str,
    living: Callable[[], Awaitable[Sequence[Sign]]],
) -> APIRouter:
    """The route. `living` has the signs of life of every process."""
    api = APIRouter(tags=["operations"])
    told = [_told(settings, name, field) for name, field in type(settings).model_fields.items()]

    @api.get("/api/v1/overview")
    async def overview(request: Request) -> Overview:
        """Who asks, version, agents, replicas and settings; no secrets."""
        replicas = [
            Replica(id=sign.replica_id, beatAgeMs=int(sign.age * 1000), isThis=sign.replica_id == replica_id)
            for sign in await living()
        ]
        return Overview(
            principal=principal_of(request) if settings.tokens.strip() else None,
            version=__version__,
            agents=list(agents),
            replicas=replicas,
            settings=told,
        )

    return api


def _told(settings: Settings, name: str, field: FieldInfo) -> Setting:
    value = getattr(settings, name)
    is_default = value == field.get_default(call_default_factory=True)
    may_hide = name in _HIDDEN or field.repr is False
    said = ("not set" if value in (None, "") else "set") if may_hide and not is_default else _shown(value)
    return Setting(
        name=f"TARKO_{name.upper()}",
        value=said,
        description=field.description or "",
        isDefault=is_default,
    )


def _shown(value: object) -> str:
    if value is None or value == "":
        return "not set"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
