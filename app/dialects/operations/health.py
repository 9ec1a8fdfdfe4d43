"""Whether the server lives, whether it is ready, and which version it is."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import psutil
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app import __version__
from app.events.envelope import now_ms


class NotReady(BaseModel):
    """What is missing, part by part."""

    status: Literal["not ready"]
    problems: dict[str, str]


def router(problems: Callable[[], Awaitable[Mapping[str, str]]]) -> APIRouter:
    """The routes. `problems` names what keeps the server from working, part by part."""
    api = APIRouter(tags=["operations"])
    began = time.monotonic()

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok", "server": "tarko"}

    @api.get("/readyz", responses={503: {"model": NotReady, "description": "Not ready; see `problems`."}})
    async def readyz() -> JSONResponse:
        """The server can do its work: 200; or 503 with what is missing."""
        found = await problems()
        if not found:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "problems": dict(found)}, 503, {"retry-after": "2"})

    @api.get("/api/v1/health")
    async def health() -> dict[str, Any]:
        """The same for Tarko clients: memory in bytes, uptime in seconds."""
        memory = psutil.virtual_memory()
        return {
            "status": "ok",
            "timestamp": now_ms(),
            "uptime": round(time.monotonic() - began, 3),
            "memory": {"used": psutil.Process().memory_info().rss, "total": memory.total},
        }

    @api.get("/api/v1/version")
    async def version() -> dict[str, str]:
        """The server's version."""
        return {"version": __version__, "protocol": "1.0"}

    return api
