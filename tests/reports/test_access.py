"""Reports of web pages that reach a server on the visitor's own machine."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from tests.conftest import Server, own_database
from tests.server import Client, Serving, serving

ALLOWED = "https://chat.example"


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server that one foreign page may call."""
    async with own_database(embedded_server) as url, serving(url, allowed_origins=ALLOWED) as server:
        yield server


def foreign(port: int) -> list[str]:
    return [
        "https://evil.example",
        "null",
        "",
        "file://",
        f"http://127.0.0.1.evil.example:{port}",
        f"http://localhost.evil.example:{port}",
        f"http://evil.example:{port}",
        f"http://127.0.0.1:{port}.evil.example",
        f"http://127.0.0.1:{port + 1}",
        "http://127.0.0.1",
        f"http://127.0.0.1@evil.example:{port}",
        f"http://evil.example#@127.0.0.1:{port}",
        f"http://2130706433:{port}",
        f"ftp://127.0.0.1:{port}",
        "https://chat.example.evil.example",
        "https://evilchat.example",
        "http://chat.example",
        "https://chat.example:8443",
    ]


async def test_d34_a_foreign_page_opens_no_socket_and_drives_nothing(client: Client) -> None:
    """awslabs/cli-agent-orchestrator#533: any web page could open the local socket and drive the agent."""
    session_id = await client.session()
    port = urlsplit(client.server.url).port
    assert port is not None
    for origin in foreign(port):
        with pytest.raises(InvalidStatus) as refused:
            async with client.socket(headers={"origin": origin}):
                raise AssertionError(f"{origin!r} opened a socket")
        assert refused.value.response.status_code == 403, origin
        body = {"sessionId": session_id, "query": "x"}
        for path in ("/api/v1/sessions/query", "/api/v1/sessions/query/stream", "/api/v1/sessions/delete"):
            response = await client.post(path, body, origin=origin)
            assert (response.status_code, response.json()["code"]) == (403, "origin_not_allowed"), origin
            assert "access-control-allow-origin" not in response.headers
    assert len(await client.events(session_id)) == 1, "something came through"


async def test_d34_a_page_whose_name_was_pointed_at_us_is_refused(client: Client) -> None:
    """awslabs/cli-agent-orchestrator#533, its like: the page's own name resolves to this machine."""
    port = urlsplit(client.server.url).port
    for host in (f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}"):
        with pytest.raises(InvalidStatus) as refused:
            async with client.socket(headers={"host": host, "origin": f"http://{host}"}):
                raise AssertionError(f"{host!r} opened a socket")
        assert refused.value.response.status_code in (400, 403), host
        response = await client.http.get("/api/v1/sessions", headers={"host": host})
        assert (response.status_code, response.json()["code"]) == (403, "host_not_allowed"), host


async def test_d34_its_own_page_a_named_one_and_programs_may_come_in(client: Client) -> None:
    """awslabs/cli-agent-orchestrator#533: who is meant to come in still does."""
    for headers in ({"origin": client.server.url}, {"origin": ALLOWED}, {}):
        async with client.socket(headers=headers) as socket:
            assert (await socket.ask({"type": "ping"}, "pong"))["type"] == "pong"
