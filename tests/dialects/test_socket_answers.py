"""An answer whose client has gone while it was made."""

from typing import Any

import pytest
from starlette.websockets import WebSocket

from app.dialects.tarko.routes.socket import _Conversation
from tests.server import Client


async def test_an_answer_to_a_client_that_has_gone_is_dropped(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(_: Any) -> None:
        raise OSError("the connection was lost")

    async def nothing() -> Any:
        return {"type": "websocket.disconnect"}

    scope = {"type": "websocket", "path": "/ws", "headers": [], "state": {"principal": "local"}}
    conversation = _Conversation(client.server.parts.parts, WebSocket(scope, nothing, gone), gone)
    with caplog.at_level("DEBUG"):
        await conversation._take('{"type": "ping"}')
    assert "gone before its answer" in caplog.text
    assert not conversation._joined.broken.done()
