"""`tarko-server chat`: a conversation in the terminal, or, without one, a query for each line of stdin.

Promise: a turn's events are shown once each, whatever becomes of the connection: what was missed is read from the
session's log, and a query is sent again only with a key that makes the second sending join the first. A server that
knows no such keys is asked without one, once. Ctrl-C aborts the turn that runs; its ending is then told like any other.
A second one, or one at the prompt, leaves.
"""

import contextlib
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from types import FrameType

import typer
from httpx_sse import ServerSentEvent

from app.commands.client import ABORT, CREATE, EVENTS, EVENTS_STREAM, QUERY_STREAM, Server
from app.commands.failures import CommandFailed, ConnectionLost, NoServer, Refused, Unanswered
from app.commands.following import Comeback, Follower, Frames, Position
from app.commands.received import Received
from app.commands.rendering import ChatView, clean
from app.commands.screen import Screen

TRIES = 8
PROMPT = "> "
INTERRUPTED = 130
LAST_ANSWER = 5.0


def chat(
    server: Server, *, session: str | None, name: str | None, pause: Callable[[float], None] = time.sleep
) -> int:
    """Talk until the input ends; returns the exit code."""
    is_interactive = sys.stdin.isatty()
    screen = Screen(is_plain=not is_interactive)
    talk = Conversation(server, enter(server, session, name), screen, pause)
    screen.notice(f"Session {talk.session_id} at {server.url}.")
    if is_interactive:
        screen.notice("Ctrl-C aborts a running turn; at the prompt it leaves, as Ctrl-D does.")
        return _at_the_terminal(talk)
    return _from_a_pipe(talk)


def enter(server: Server, session: str | None, name: str | None) -> str:
    """A session's id: the given one, if it is there, or a new one's."""
    if session is not None:
        server.get(EVENTS, {"sessionId": session, "limit": 1})
        return session
    return str(server.post(CREATE, {"name": name} if name else {}).get("sessionId", ""))


def _at_the_terminal(talk: "Conversation") -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives `input` a history and editing keys
    while True:
        try:
            query = input(PROMPT)
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return 0
        if not query.strip():
            continue
        try:
            talk.ask(query)
        except Refused as refusal:
            talk.fail(refusal)
        except KeyboardInterrupt:
            return INTERRUPTED


def _from_a_pipe(talk: "Conversation") -> int:
    code = 0
    for line in typer.get_text_stream("stdin", encoding="utf-8", errors="replace"):
        if not line.strip():
            continue
        try:
            status = talk.ask(line.rstrip("\r\n"))
        except Refused as refusal:
            talk.fail(refusal)
            status = "refused"
        except KeyboardInterrupt:
            return INTERRUPTED
        if talk.was_interrupted:
            return INTERRUPTED
        if status != "completed":
            code = 1
    return code


@dataclass(slots=True)
class Conversation:
    """One session, turn after turn, told on a screen."""

    server: Server
    session_id: str
    screen: Screen
    pause: Callable[[float], None] = time.sleep
    was_interrupted: bool = False
    was_left: bool = False
    knows_keys: bool = True
    _view: ChatView = field(default_factory=ChatView)

    def ask(self, query: str) -> str:
        """Run one turn to its ending and return the ending's status."""
        self.was_interrupted = False
        turn = Turn(self, query)
        with self._aborting(turn), closing(turn.events()) as events:
            for event in events:
                self.screen.show(self._view.tell(event))
        if turn.is_session_over:
            raise CommandFailed(f"{self.session_id} was deleted.", code="session_deleted")
        return turn.status

    def fail(self, error: CommandFailed) -> None:
        """Say what went wrong, and go on."""
        self.screen.show(self._view.line(f"{clean(str(error))} ({error.code})", "error"))

    @contextlib.contextmanager
    def _aborting(self, turn: "Turn") -> Iterator[None]:
        """In the block, the first Ctrl-C aborts the turn, which goes on to its ending; the second leaves."""

        # A thread of its own, because the interrupted code may hold the lock of the connections.
        abort = threading.Thread(target=turn.abort, name="abort", daemon=True)

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self.was_interrupted:
                self.was_left = True
                raise KeyboardInterrupt
            self.was_interrupted = True
            abort.start()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
            if (
                self.was_interrupted
            ):  # its answer comes with the ending, and must not be told in the next turn
                abort.join(LAST_ANSWER)
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(slots=True)
class Turn:
    """One query, from its sending to its ending."""

    talk: Conversation
    query: str
    status: str = ""
    is_session_over: bool = False
    _id: str | None = None
    _key: str = field(default_factory=lambda: str(uuid.uuid4()))

    def events(self) -> Generator[Received, None, None]:
        """Every event of the turn once, up to its ending."""
        comeback = Comeback(TRIES, self.talk.screen.notice, self.talk.pause)
        follower = Follower(self._connect, self._is_last, comeback)
        # The session was answered a moment ago: a refused connection now is a restart, not a wrong address.
        comeback.began()
        try:
            yield from follower.events()
        except ConnectionLost as loss:
            raise ConnectionLost(
                f"{loss} The turn may go on without us: see it with "
                f"`tarko-server tail {self.talk.session_id}`."
            ) from loss

    def abort(self) -> None:
        """Ask the server to end the turn. Its ending comes with the events."""
        body = {"sessionId": self.talk.session_id} | ({"turnId": self._id} if self._id else {})
        try:
            self.talk.server.post(ABORT, body)
        except (CommandFailed, RuntimeError) as error:  # RuntimeError: who left has closed the connections
            if self.talk.was_left:
                return
            self.talk.screen.notice(f"The turn could not be aborted: {error} Ctrl-C again leaves.")

    def _connect(self, position: Position) -> Frames:
        if position.last_id is None:
            return self._sent(position)
        params = {"sessionId": self.talk.session_id}
        return self.talk.server.stream("GET", EVENTS_STREAM, params=params, headers=position.headers)

    @contextlib.contextmanager
    def _sent(self, position: Position) -> Iterator[Iterator[ServerSentEvent]]:
        """Send the query. Without a key, a connection that breaks before the answer is a loss for good."""
        if self.talk.knows_keys:
            try:
                with self._post({"Idempotency-Key": self._key}) as frames:
                    yield frames
                return
            except Refused as refusal:
                if refusal.code != "not_supported":
                    raise
                self.talk.knows_keys = False
        try:
            with self._post({}) as frames:
                yield frames
        except ConnectionLost as loss:
            if isinstance(loss, NoServer) or position.last_id is not None:
                raise
            raise Unanswered(
                f"{loss} `tarko-server tail {self.talk.session_id}` shows whether the query came through."
            ) from loss

    def _post(self, headers: dict[str, str]) -> Frames:
        body = {"sessionId": self.talk.session_id, "query": self.query}
        return self.talk.server.stream("POST", QUERY_STREAM, body=body, headers=headers)

    def _is_last(self, event: Received) -> bool:
        if event.type == "agent_run_start":
            self._id = event.text_of("turnId") or None
        if event.type == "agent_run_end":
            self.status = event.text_of("status")
        self.is_session_over = event.type == "session_end"
        return event.type in ("agent_run_end", "session_end")
