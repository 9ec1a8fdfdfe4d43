"""One socket that follows any number of sessions.

Each joined session has an outlet of its own; the socket's answers about a session go through its outlet, so they come
after the events that were sent before and name their true place. The socket is closed when a reader is too slow (1013,
come back with a cursor) or the server stops (1012).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from app.events.envelope import Envelope
from app.log.logs import Logs
from app.log.session_log import Page, SessionLog
from app.transport.cursor import Cursor, Start
from app.transport.outlet import Message, Outlet, ReaderTooSlow, Send
from app.transport.readers import Readers, Registration, ServerStops

TOO_SLOW = 1013
SERVER_STOPS = 1012
INTERNAL_ERROR = 1011


def text(payload: bytes) -> Message:
    """A text message."""
    return {"type": "websocket.send", "text": payload.decode()}


class JoinedSessions:
    """The sessions that one socket follows. `broken` has the close code when the socket must end."""

    def __init__(
        self,
        send: Send,
        logs: Logs,
        readers: Readers,
        *,
        spell: Callable[[Sequence[Envelope]], list[bytes]],
        send_timeout: float,
    ) -> None:
        self.broken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._send = send
        self._logs = logs
        self._readers = readers
        self._frame = spell
        self._send_timeout = send_timeout
        self._joined: dict[str, Registration] = {}

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._joined

    def join(self, log: SessionLog, start: Start, first: Callable[[int], Message] | None = None) -> None:
        """Follow a session, of whose log the caller hands over a lease; `first` is said before its first event."""
        self.leave(log.session_id)
        cursor = Cursor(log, start)
        outlet = Outlet(log, cursor, self._send, self._messages, send_timeout=self._send_timeout)
        reader = Registration(outlet, ping=None)
        self._joined[log.session_id] = reader
        outlet.closed.add_done_callback(lambda closed: self._closed(log.session_id, reader, closed.result()))
        self._readers.add(reader)
        outlet.open(first)

    def leave(self, session_id: str) -> None:
        """Stop following a session."""
        reader = self._joined.pop(session_id, None)
        if reader is not None:
            reader.outlet.close()

    def leave_all(self) -> None:
        """Stop following every session."""
        for session_id in list(self._joined):
            self.leave(session_id)

    def say(self, session_id: str, make: Callable[[int], Message]) -> bool:
        """Say something of a joined session, in order with its events; False when it is not joined."""
        reader = self._joined.get(session_id)
        if reader is not None:
            reader.outlet.say(make)
        return reader is not None

    def give_up(self, code: int) -> None:
        """End the socket with this close code; the first one stands."""
        if not self.broken.done():
            self.broken.set_result(code)

    def _messages(self, pages: list[Page]) -> Iterator[Message]:
        # Made one by one, as they are sent: a slow reader holds no copies of what others share with it.
        return (text(payload) for page in pages for payload in page.encoded(self._frame))

    def _closed(self, session_id: str, reader: Registration, reason: BaseException | None) -> None:
        self._readers.remove(reader)
        self._logs.release(session_id)
        if self._joined.get(session_id) is reader:
            del self._joined[session_id]
        if reason is not None:
            self.give_up(_code(reason))


def _code(reason: BaseException) -> int:
    if isinstance(reason, ReaderTooSlow):
        return TOO_SLOW
    return SERVER_STOPS if isinstance(reason, ServerStops) else INTERNAL_ERROR
