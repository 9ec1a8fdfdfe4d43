"""What the supervisor asks of a store, and the store's twin in memory."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.errors import SessionBusy, SessionDeleted
from app.events.canonical import decode
from app.events.ending import ASKS
from app.events.envelope import Draft, Placed, now_ms
from app.events.vocabulary import EndingStatus
from app.log.store import Fence, MemoryEventStore, MemoryTurn, Strand
from app.turns.admission import Answering, Key, KeyReused, NothingAsked


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as it is stored: running while `status` is None. Times are epoch milliseconds.

    `stored` counts its events in the log; they lie between `first_place` and `last_place`. `continues` is the first of
    the turns that it answers, if it does.
    """

    id: str
    session_id: str
    epoch: int
    stored: int
    first_place: int
    last_place: int
    trace_id: str | None = None
    status: EndingStatus | None = None
    code: str | None = None
    continues: str | None = None


class TurnStore(Protocol):
    """The turns' storage."""

    async def start(
        self,
        turn_id: str,
        session_id: str,
        drafts: Sequence[Draft],
        *,
        owner: str,
        trace_id: str | None,
        key: Key | None = None,
        answering: Answering | None = None,
    ) -> Placed:
        """Store a running turn of epoch 1 together with its first events, and what its key stands for.

        Raises `SessionBusy` when another turn runs or waits in the session, `SessionDeleted` when the session admits
        none, `KeyReused` when the key is taken already (also by the same request), and `NothingAsked` when the turn to
        be answered is not the session's last one or asks nothing.
        """
        ...

    async def get(self, turn_id: str) -> TurnRow | None:
        """A turn, running or ended."""
        ...

    async def orphans(self, owner: str, running: Collection[str], *, is_alone: bool) -> Sequence[TurnRow]:
        """Running turns that nobody runs.

        They are those of `owner` that are not among `running`, and those of processes that have not said for six
        seconds that they live; of every other process, if the caller is alone.
        """
        ...

    async def take_over(self, turn: TurnRow, owner: str) -> TurnRow | None:
        """Raise a running turn's epoch, so that only the caller may write; None when somebody else was first."""
        ...

    async def ask_to_stop(self, session_id: str, turn_id: str | None) -> tuple[str, bool] | None:
        """Leave word for the owner of the session's running turn (or of that turn only) to abort it.

        Returns which it was, and whether nobody had asked before.
        """
        ...

    async def asked_to_stop(self, owner: str, running: Collection[str]) -> Sequence[str]:
        """Those of its turns that the owner must stop: it is asked to abort them, or they are its own no longer."""
        ...

    async def tool_ids(self, session_id: str) -> Sequence[str]:
        """The tool call ids that the session's log has."""
        ...

    async def forget_keys(self, before: int) -> int:
        """Let the idempotency keys go that are older; returns how many."""
        ...

    async def retire(self, before: int) -> int:
        """Remove the passing events of turns that ended before then; returns how many turns."""
        ...


class MemoryTurnStore:
    """The store's twin in memory, beside the log's."""

    def __init__(self, log: MemoryEventStore) -> None:
        self._log = log
        self._first: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        self._traces: dict[str, str | None] = {}
        self._continues: dict[str, str | None] = {}
        self._stops: set[str] = set()
        self._keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self.waiting_in: Callable[[str], int] = lambda session_id: 0

    async def start(
        self,
        turn_id: str,
        session_id: str,
        drafts: Sequence[Draft],
        *,
        owner: str,
        trace_id: str | None,
        key: Key | None = None,
        answering: Answering | None = None,
    ) -> Placed:
        head = self._log.heads.get(session_id)
        if head is None or head.is_closed or head.is_closing:
            raise SessionDeleted(f"Session {session_id} was deleted.")
        if head.running_turn is not None:
            raise SessionBusy("A turn is running in this session.", details={"turnId": head.running_turn})
        if self.waiting_in(session_id):
            raise SessionBusy("Turns wait in this session.")
        if answering is not None and not self._asks(session_id, answering.asking):
            raise NothingAsked("Nothing is asked there any more.")
        self.claim_key(session_id, key, turn_id)
        self._log.turns[turn_id] = MemoryTurn(session_id)
        self._log.heads[session_id] = head._replace(running_turn=turn_id)
        self._first[turn_id] = head.place + 1
        self._owners[turn_id] = owner
        self._traces[turn_id] = trace_id
        self._continues[turn_id] = answering.first if answering else None
        [placed] = await self._log.write([Strand(session_id, Fence(turn_id, 1), drafts=list(drafts))])
        assert placed is not None  # noqa: S101 - the turn was stored two lines above
        return placed

    async def get(self, turn_id: str) -> TurnRow | None:
        return self._row(turn_id) if turn_id in self._log.turns else None

    async def orphans(self, owner: str, running: Collection[str], *, is_alone: bool) -> Sequence[TurnRow]:
        return [
            self._row(turn_id)
            for turn_id, turn in self._log.turns.items()
            if turn.ending is None
            and (turn_id not in running if self._owners[turn_id] == owner else is_alone)
        ]

    async def take_over(self, turn: TurnRow, owner: str) -> TurnRow | None:
        stored = self._log.turns.get(turn.id)
        if stored is None or stored.epoch != turn.epoch or stored.ending is not None:
            return None
        stored.epoch += 1
        self._owners[turn.id] = owner
        return self._row(turn.id)

    async def ask_to_stop(self, session_id: str, turn_id: str | None) -> tuple[str, bool] | None:
        head = self._log.heads.get(session_id)
        running = head.running_turn if head is not None else None
        if running is None or turn_id not in (None, running):
            return None
        is_first = running not in self._stops
        self._stops.add(running)
        return running, is_first

    async def asked_to_stop(self, owner: str, running: Collection[str]) -> Sequence[str]:
        return [
            turn_id
            for turn_id in running
            if turn_id in self._stops
            or self._owners.get(turn_id) != owner
            or self._log.turns[turn_id].ending is not None
        ]

    def claim_key(self, session_id: str, key: Key | None, turn_id: str) -> None:
        """Let a key stand for a turn. Raises `KeyReused` when it stands for one."""
        if key is None:
            return
        if (session_id, key.key) in self._keys:
            raise KeyReused("This Idempotency-Key was used before.")
        self._keys[session_id, key.key] = (turn_id, key.request_hash, now_ms())

    def turn_of_key(self, session_id: str, key: Key) -> str | None:
        """The turn that a key stands for. Raises `KeyReused` when it came with another request."""
        if session_id not in self._log.heads:
            return None  # keys go with the session's rows
        turn_id, request_hash, _ = self._keys.get((session_id, key.key), (None, key.request_hash, 0))
        if request_hash != key.request_hash:
            raise KeyReused("This Idempotency-Key was used for another request.")
        return turn_id

    async def tool_ids(self, session_id: str) -> Sequence[str]:
        events = self._log.events.get(session_id, [])
        return [decode(event.data)["id"] for event in events if event.type == "tool_call"]

    async def forget_keys(self, before: int) -> int:
        old = [key for key, (_, _, created_at) in self._keys.items() if created_at < before]
        for key in old:
            del self._keys[key]
        return len(old)

    async def retire(self, before: int) -> int:
        due = {
            turn_id: turn
            for turn_id, turn in self._log.turns.items()
            if turn.ending is not None and turn.ended_at < before and not turn.is_retired
        }
        for turn in due.values():
            turn.is_retired = True
        for session_id, events in self._log.events.items():
            self._log.events[session_id] = [
                event for event in events if event.ordinal is not None or event.turn_id not in due
            ]
        return len(due)

    def _row(self, turn_id: str) -> TurnRow:
        turn = self._log.turns[turn_id]
        ending = turn.ending
        return TurnRow(
            turn_id,
            turn.session_id,
            turn.epoch,
            turn.stored,
            self._first[turn_id],
            turn.last_place,
            self._traces[turn_id],
            status=ending.status if ending else None,
            code=ending.code if ending else None,
            continues=self._continues[turn_id],
        )

    def _asks(self, session_id: str, turn_id: str) -> bool:
        """Whether the turn is the session's last one and asks something."""
        latest = [known for known, turn in self._log.turns.items() if turn.session_id == session_id][-1:]
        ending = self._log.turns[turn_id].ending if latest == [turn_id] else None
        return ending is not None and ending.code == ASKS
