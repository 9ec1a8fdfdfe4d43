"""An agent that lets people choose, and says what was chosen."""

from collections.abc import AsyncIterator
from typing import ClassVar

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.server import COMPLETED, Json, Scripted, said

SMALL = {"id": "small", "provider": "acme", "displayName": "Small"}
LARGE = {"id": "large", "provider": "acme", "displayName": "large"}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "deep": {"type": "boolean", "title": "Deep", "default": False},
        "style": {"type": "string", "enum": ["short", "long"], "default": "long"},
    },
}


class Choosing(Scripted):
    """An agent that says what was chosen."""

    allowed_models: ClassVar[list[Json]] = [SMALL, {"id": "large", "provider": "acme"}]
    settings_schema: ClassVar[Json] = SCHEMA

    async def _tell(self, scope: Scope, _: Prompt) -> AsyncIterator[AgentEvent]:
        settings = scope["settings"]
        yield said(f"{scope['model']['id']} {settings['deep']} {settings['style']}")
        yield COMPLETED

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        return self._tell(scope, prompt)
