"""`tarko-server chat`: a conversation in the terminal, or, without one, a query for each line of stdin.

Promise: a turn's events are shown once each, whatever becomes of the connection. Ctrl-C aborts the turn that runs; its
ending is then told like any other. A second one, or one at the prompt, leaves.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from types import FrameType

import typer

from app.commands.connecting import explanation, noticing
from app.commands.failures import CommandFailed
from app.commands.rendering import ChatView, clean
from app.commands.screen import Screen
from tarko_client import Backoff, Client, ClientError, ConnectionLost, Event, Refused, Session

TRIES = 8
PROMPT = "> "
INTERRUPTED = 130
LAST_ANSWER = 5.0


def chat(client: Client, *, session: str | None, name: str | None) -> int:
    """Talk until the input ends; returns the exit code."""
    is_interactive = sys.stdin.isatty()
    screen = Screen(is_plain=not is_interactive)
    talk = Conversation(enter(client, session, name), screen)
    screen.notice(f"Session {talk.session.id} at {client.url}.")
    if is_interactive:
        screen.notice("Ctrl-C aborts a running turn; at the prompt it leaves, as Ctrl-D does.")
        return _at_the_terminal(talk)
    return _from_a_pipe(talk)


def enter(client: Client, session_id: str | None, name: str | None) -> Session:
    """The session of that id, if it is there, or a new one."""
    if session_id is None:
        return client.create(name)
    session = client.session(session_id)
    session.details()
    return session


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

    session: Session
    screen: Screen
    was_interrupted: bool = False
    was_left: bool = False
    _view: ChatView = field(default_factory=ChatView)

    def ask(self, query: str) -> str:
        """Run one turn to its ending and return the ending's status."""
        self.was_interrupted = False
        turn = Turn(self, query)
        with self._aborting(turn), closing(turn.events()) as events:
            for event in events:
                self.screen.show(self._view.tell(event))
        if turn.is_session_over:
            raise CommandFailed(f"{self.session.id} was deleted.", code="session_deleted")
        return turn.status

    def fail(self, error: ClientError) -> None:
        """Say what went wrong, and go on."""
        self.screen.show(self._view.line(f"{clean(explanation(error))} ({error.code})", "error"))

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

    def events(self) -> Generator[Event, None, None]:
        """Every event of the turn once, up to its ending."""
        stream = self.talk.session.stream(
            self.query, backoff=Backoff(tries=TRIES), on_state=noticing(self.talk.screen)
        )
        try:
            with closing(stream) as events:
                for event in events:
                    self._take(event)
                    yield event
        except ConnectionLost as loss:
            raise CommandFailed(
                f"{loss} The turn may go on without us: see it with "
                f"`tarko-server tail {self.talk.session.id}`.",
                code=loss.code,
            ) from loss

    def abort(self) -> None:
        """Ask the server to end the turn. Its ending comes with the events."""
        try:
            self.talk.session.abort(self._id)
        except (ClientError, RuntimeError) as error:  # RuntimeError: who left has closed the connections
            if self.talk.was_left:
                return
            self.talk.screen.notice(f"The turn could not be aborted: {error} Ctrl-C again leaves.")

    def _take(self, event: Event) -> None:
        match event.type:
            case "agent_run_start" | "query_queued":
                self._id = event.text_of("turnId") or None
            case "agent_run_end":
                self.status = event.text_of("status")
            case "session_end":
                self.is_session_over = True
