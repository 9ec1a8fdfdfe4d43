"""A scripted server on loopback: each path has replies, taken in order; requests are kept as they came.

A stream's reply is a sequence of steps: bytes are sent as one chunk, a function is called between them (to wait for
something, or to interrupt). After its last step the stream ends, or, with `cut`, breaks.
"""

import contextlib
import json
import socket
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SESSION = "sess_abcdefghijklmnopqrstuvwxyz"
Step = bytes | Callable[[], object]


@dataclass(frozen=True)
class Reply:
    """What a request is answered with."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] | None = None
    cut: bool = False


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def answers(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


def refuses(status: int, code: str, message: str = "No.", **headers: str) -> Reply:
    body = json.dumps({"error": message, "code": code}).encode()
    return Reply(body, status, {"Content-Type": "application/json", **headers})


def streams(*steps: Step, cut: bool = False) -> Reply:
    return Reply(steps=steps, cut=cut, headers={"Content-Type": "text/event-stream"})


def event(place: int, kind: str, /, **data: Any) -> bytes:
    """An envelope as the server spells it."""
    fields = {
        "id": f"evt_{SESSION[5:]}_{place}",
        "type": kind,
        "timestamp": 1_700_000_000_000 + place,
        "sessionId": SESSION,
        "data": data,
        "metadata": {"source": "agent", "version": "1.0"},
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def opening(place: int = 0, retry: int = 1) -> bytes:
    return f"retry: {retry}\nid: evt_{SESSION[5:]}_{place}\n\n".encode()


def frame(envelope: bytes) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (json.loads(envelope)["id"].encode(), envelope)


def named_frame(envelope: bytes) -> bytes:
    fields = json.loads(envelope)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (fields["id"].encode(), fields["type"].encode(), envelope)


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no error of the script."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class ScriptedServer:
    """Use as a context manager."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._replies: dict[str, deque[Reply]] = defaultdict(deque)
        self._waiting: dict[str, threading.Event] = defaultdict(threading.Event)
        self._http = _Http(("127.0.0.1", 0), partial(_Handler, self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def script(self, path: str, *replies: Reply) -> None:
        self._replies[path].extend(replies)

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def wait_for(self, path: str) -> None:
        """Return when the path has been asked for."""
        assert self._waiting[path].wait(60), f"nobody asked for {path}"

    def release(self, path: str) -> None:
        """Let those go on who wait for the path."""
        self._waiting[path].set()

    def drop(self, path: str) -> None:
        """Forget the path's next reply."""
        self._replies[path].popleft()

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def take(self, request: Request) -> Reply:
        self.requests.append(request)
        self._waiting[request.path].set()
        replies = self._replies[request.path]
        if not replies:
            return refuses(500, "not_scripted", f"{request.method} {request.path} is not in the script")
        return replies.popleft() if len(replies) > 1 else replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, scripted: ScriptedServer, *connection: Any) -> None:
        self._scripted = scripted
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_GET  # noqa: N815 - the base class's word

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body)
        reply = self._scripted.take(request)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.steps is None:
            self._whole(reply)
        else:
            self._stream(reply.steps, cut=reply.cut)

    def _whole(self, reply: Reply) -> None:
        self.send_header("Content-Length", str(len(reply.body) + reply.cut))
        self.end_headers()
        self.wfile.write(reply.body)
        if reply.cut:
            self._hang_up()

    def _stream(self, steps: Iterable[Step], *, cut: bool) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for step in steps:
                if callable(step):
                    step()
                else:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(step), step))
            if not cut:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has gone
            cut = True
        if cut:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass
