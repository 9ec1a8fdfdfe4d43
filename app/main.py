"""The ASGI application. `app` is what an ASGI server imports; its settings come from the environment."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Receive, Scope, Send

from app import __version__
from app.access.body_limit import BodyLimit
from app.access.gate import Gate
from app.access.login import login_router
from app.access.policy import Policy, check_exposure
from app.access.principals import Principals
from app.agents.contract import Agent
from app.dialects.a2a import routes as a2a
from app.dialects.invoke import routes as invoke
from app.dialects.operations import api_page, console, health, metrics, overview
from app.dialects.tarko import errors
from app.dialects.tarko.messages import EventEnvelope, Refusal
from app.dialects.tarko.routes import events, query, sessions, socket
from app.dialects.tarko_ui import routes as tarko_ui
from app.postgres.pool import Pool
from app.settings import Settings
from app.transport import wire
from app.wiring import Server, Storage, postgres_storage, running

_VALIDATION = "HTTPValidationError"
DESCRIPTION = "Tarko's Agent Protocol over a durable log. Every event is stored before anyone sees it."


class Application:
    """The ASGI application and, while it runs, its server."""

    def __init__(
        self,
        settings: Settings,
        agent: Agent | None = None,
        storage: Callable[[Pool], Storage] = postgres_storage,
    ) -> None:
        """Raises `ConfigurationError` when the settings would expose the server."""
        check_exposure(settings)
        self.settings = settings
        self.server: Server | None = None
        self._agent = agent
        self._storage = storage
        principals = Principals.parse(settings.tokens)
        self.api = FastAPI(
            title="Tarko event server",
            version=__version__,
            description=DESCRIPTION,
            lifespan=self._lifespan,
            docs_url=None,
            redoc_url=None,
        )
        errors.install(self.api)
        self.api.include_router(login_router(principals, cookie_lifetime=settings.cookie_lifetime))
        self.api.openapi = self._openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it
        self._asgi = Gate(
            BodyLimit(self.api, settings.max_body),
            policy=Policy.of(settings),
            principals=principals,
            is_public=lambda path: _is_page(path) or a2a.is_card(path),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire.mark(scope, send)
        await self._asgi(scope, receive, send)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Server]:
        """Serve for as long as the block runs.

        Raises `AgentLoadError`, `ConfigurationError`, `StorageUnavailable`.
        """
        async with running(self.settings, self._agent, self._storage) as server:
            self.server = server
            for router in _routers(server):
                self.api.include_router(router)
            self.api.router.routes.append(socket.route(server.parts))
            self.api.router.routes.extend(a2a.routes(server.a2a))
            self.api.router.routes.extend(
                [*console.routes(), *api_page.routes(self.api.title), tarko_ui.fonts()]
            )
            yield server

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with self.started():
            yield

    def _openapi(self) -> dict[str, Any]:
        if self.api.openapi_schema is None:
            document = get_openapi(
                title=self.api.title,
                version=self.api.version,
                description=DESCRIPTION,
                routes=self.api.routes,
            )
            self.api.openapi_schema = _described(document)
        return self.api.openapi_schema


def create_app() -> ASGIApp:
    """The application over the environment's settings: `uvicorn --factory app.main:create_app`."""
    return Application(Settings())


def _routers(server: Server) -> list[APIRouter]:
    parts = server.parts
    return [
        sessions.router(parts),
        events.router(parts),
        query.router(parts),
        *tarko_ui.routers(parts, server.settings.ui_title, server.settings.workspace),
        invoke.router(parts, parts.agents[0]),
        health.router(server.problems),
        metrics.router(server.readings()),
        overview.router(server.settings, parts.agents, server.replica_id, server.living),
    ]


def _is_page(path: str) -> bool:
    return console.is_public(path) or tarko_ui.is_public(path)


def _described(document: dict[str, Any]) -> dict[str, Any]:
    """Every operation with the refusals it may answer: invalid requests are a 400 here, not FastAPI's 422."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (EventEnvelope, Refusal):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.pop(_VALIDATION, None)
    schemas.pop("ValidationError", None)
    refusals = {
        "400": "The request is not what the protocol says.",
        "401": "No valid token or cookie.",
        "403": "The host or origin is not allowed.",
        "404": "No such session, or it was deleted.",
        "409": "Another turn runs in the session.",
        "413": "The body is too large.",
        "503": "Draining, or the database is away; see `Retry-After`.",
    }
    for path in document["paths"].values():
        for operation in path.values():
            if _VALIDATION in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            for status, why in refusals.items():
                operation["responses"].setdefault(
                    status,
                    {
                        "description": why,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
                    },
                )
    return document
