"""One of several processes that do at random what replicas do to a few sessions; says how often, and what deadlocked.

`python -m tests.replicas.stress <database> <seed> <seconds>`
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import asyncpg

from app.agents.prompt import prompt_of
from app.errors import SessionBusy, SessionDeleted, StorageUnavailable
from app.events.ending import Ending
from app.events.envelope import Draft, now_ms
from app.events.ids import new_turn_id
from app.log.store import Strand
from app.postgres.event_store import PostgresEventStore
from app.postgres.pool import Pool
from app.postgres.queue_store import PostgresQueueStore
from app.postgres.session_store import PostgresSessionStore
from app.postgres.turn_store import PostgresTurnStore
from app.sessions.session import Change
from app.turns.admission import Query, QueueFull
from app.turns.turn_store import TurnRow
from tests.log.storing import Stores, delta, draft, keyed, of_turn

SESSIONS = 5
AT_ONCE = 3
OPEN = "SELECT session_id FROM heads WHERE phase = 'open' ORDER BY session_id"
RUNNING = "SELECT id FROM turns WHERE session_id = $1 AND state = 'running'"
REFUSALS = (SessionBusy, SessionDeleted, QueueFull)


class Stress:
    """Chooses, does, and counts."""

    def __init__(self, stores: Stores, pool: Pool, seed: int) -> None:
        self._stores = stores
        self._pool = pool
        self._chance = random.Random(seed)  # noqa: S311 - a test's order, not a secret
        self._name = f"process {seed}"
        self.done: Counter[str] = Counter()
        self.deadlocks: list[str] = []

    async def run(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        deeds: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (30, self.flush), (12, self.start), (12, self.enqueue), (12, self.start_queued), (6, self.remove),
            (6, self.ask_to_stop), (6, self.take_over), (4, self.update), (3, self.delete), (3, self.retire),
            (3, self.purge),
        ]  # fmt: skip
        weights = [weight for weight, _ in deeds]
        while time.monotonic() < ends:
            [(_, deed)] = self._chance.choices(deeds, weights)
            await self._do(deed)

    async def _do(self, deed: Callable[[], Awaitable[object]]) -> None:
        name = deed.__name__
        try:
            await deed()
            self.done[name] += 1
        except REFUSALS as refusal:
            self.done[f"{name}: {type(refusal).__name__}"] += 1
        except StorageUnavailable as error:
            if isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                self.deadlocks.append(f"{name}: {error.__cause__.detail}")
            else:
                # Only the key of a write that is still committing may be asked for again, and none is used twice here.
                raise

    async def _sessions(self, count: int) -> list[str]:
        async with self._pool.connection() as connection:
            found = [row["session_id"] for row in await connection.fetch(OPEN)]
        while len(found) < SESSIONS:
            found.append(await self._stores.new_session())
        return self._chance.sample(found, count)

    async def _running(self, session_id: str) -> TurnRow | None:
        async with self._pool.connection() as connection:
            turn_id = await connection.fetchval(RUNNING, session_id)
        return None if turn_id is None else await self._stores.turns.get(turn_id)

    def _drafts(self) -> list[Draft]:
        # Some writes are large enough for COPY.
        count = 60 if self._chance.random() < 0.15 else self._chance.randint(1, 4)
        return [self._chance.choice((delta, draft))() for _ in range(count)]

    async def flush(self) -> None:
        """One write of several sessions: of their turns, whoever runs them, and from outside of turns."""
        strands: list[Strand] = []
        for session_id in await self._sessions(self._chance.randint(1, 4)):
            turn = await self._running(session_id)
            if turn is not None and turn.status is None:
                if self._chance.random() < 0.3:
                    ending = Ending.completed()
                    last = [*self._drafts(), draft("agent_run_end")]
                    strands.append(
                        of_turn(session_id, turn.id, turn.stored + 1, last, epoch=turn.epoch, ending=ending)
                    )
                else:
                    strands.append(
                        of_turn(session_id, turn.id, turn.stored + 1, self._drafts(), epoch=turn.epoch)
                    )
            if self._chance.random() < 0.4:
                strands.append(keyed(session_id, *self._drafts()))
        if strands:
            await self._stores.events.write(strands)

    async def start(self) -> None:
        [session_id] = await self._sessions(1)
        await self._stores.new_turn(session_id, owner=self._name)

    async def enqueue(self) -> None:
        [session_id] = await self._sessions(1)
        first = self._chance.random() < 0.3
        query = Query("hi", prompt_of("hi"))
        await self._stores.queue.enqueue(new_turn_id(), session_id, query, first=first, limit=4, key=None)

    async def start_queued(self) -> None:
        for session_id in await self._stores.queue.stranded():
            following = await self._stores.queue.next(session_id)
            if following is not None:
                drafts = [draft("user_message"), draft("agent_run_start")]
                await self._stores.queue.start(following.turn, drafts, owner=self._name)

    async def remove(self) -> None:
        [session_id] = await self._sessions(1)
        waiting = await self._stores.queue.waiting(session_id)
        if waiting:
            await self._stores.queue.remove(session_id, self._chance.choice(waiting).turn_id)

    async def ask_to_stop(self) -> None:
        [session_id] = await self._sessions(1)
        await self._stores.turns.ask_to_stop(session_id, None)

    async def take_over(self) -> None:
        orphans = await self._stores.turns.orphans(self._name, [], is_alone=True)
        if orphans:
            await self._stores.turns.take_over(self._chance.choice(orphans), self._name)

    async def update(self) -> None:
        [session_id] = await self._sessions(1)
        await self._stores.sessions.update(session_id, Change(name="new"), now_ms())

    async def delete(self) -> None:
        [session_id] = await self._sessions(1)
        if await self._stores.sessions.bury(session_id, now_ms()):
            turn = await self._running(session_id)
            if turn is not None:
                end = of_turn(
                    session_id,
                    turn.id,
                    turn.stored + 1,
                    [draft("agent_run_end")],
                    epoch=turn.epoch,
                    ending=Ending.aborted(),
                )
                await self._stores.events.write([end])
            await self._stores.append(session_id, draft("session_end"), closes=True)

    async def retire(self) -> None:
        await self._stores.turns.retire(now_ms() + 1)

    async def purge(self) -> None:
        await self._stores.sessions.purge(now_ms() - 200)


async def main(url: str, seed: int, seconds: float) -> None:
    pool = Pool(url, size=AT_ONCE)
    await pool.open()
    stores = Stores(
        PostgresEventStore(pool),
        PostgresSessionStore(pool),
        PostgresTurnStore(pool),
        PostgresQueueStore(pool),
    )
    stress = Stress(stores, pool, seed)
    await asyncio.gather(*(stress.run(seconds) for _ in range(AT_ONCE)))
    await pool.close()
    sys.stdout.write(json.dumps({"done": stress.done, "deadlocks": stress.deadlocks}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
