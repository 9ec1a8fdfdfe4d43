"""One scene of the drill: sessions, turns that run in them, readers of all kinds, a fault, and what came of it.

Begun, it has readers that follow and turns that run; then the fault strikes. Finished, every session has taken one
more query, every reader has reached the end of the log, and the checker has judged the evidence.
"""

import asyncio
import random
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from app.drill.asking import Asker, Told
from app.drill.checker import CHECKED, Evidence, TurnInLog, check, turns_of
from app.drill.findings import Findings
from app.drill.history import whole_log
from app.drill.journal import Said, read_journal
from app.drill.readers import follow
from app.drill.record import Record, place_of
from app.drill.web import Web

BEGIN = 20.0
TURNS_END = 60.0
CATCH_UP = 20.0
ORPHAN_LIMIT = 10.0
AGAIN = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """How much goes on: sessions, what is asked in each, and the kinds of its readers."""

    sessions: int = 6
    prompt: str = "60 10"
    last_prompt: str = "1 0"
    kinds: tuple[str, ...] = ("sse", "ws", "history")
    is_restless: bool = False
    agent: str | None = None


@dataclass(slots=True)
class Expected:
    """What a fault may cause: endings (more of them for turns whose agent had said nothing), whether every process lives, and how long until queries are taken again.

    `last_ending`: how the last turn of a session must end; None for however it likes.
    """

    endings: Collection[str] = ("completed",)
    unstarted: Collection[str] = ()
    agents_live: bool = False
    usable_in: float = 10.0
    last_ending: str | None = "completed"


class Scene:
    """One scene on the servers of `web`. Strikers set `orphaned_at` (epoch ms) when they have made orphans."""

    def __init__(
        self,
        web: Web,
        findings: Findings,
        load: Load,
        expected: Expected,
        chance: random.Random,
        *,
        journal: Path | None = None,
    ) -> None:
        self.web = web
        self.asker = Asker(web)
        self.sessions: list[str] = []
        self.deleted: set[str] = set()
        self.records: list[Record] = []
        self.logs: dict[str, list[bytes]] = {}
        self.orphaned_at: int | None = None
        self._findings = findings
        self._load = load
        self._expected = expected
        self._chance = chance
        self._journal = journal
        self._last_turns: set[str | None] = set()
        self._reading: list[asyncio.Task[None]] = []
        self._asking: list[asyncio.Task[Told]] = []

    async def begin(self, *, asks: bool = True) -> None:
        """Create the sessions, follow them, and ask a query in each."""
        async with asyncio.timeout(BEGIN):
            for number in range(self._load.sessions):
                await self._open(number)
        if asks:
            for number, session_id in enumerate(self.sessions):
                self.ask(session_id, self._load.prompt, number)

    async def _open(self, number: int) -> None:
        base = self.web.bases[number % len(self.web.bases)]
        session_id = await self._created(base)
        self.sessions.append(session_id)
        for first, kind in enumerate(self._load.kinds, number):
            self.read(Record(session_id, kind), first=first, is_restless=self._load.is_restless)

    async def _created(self, base: str) -> str:
        while True:
            try:
                return await self.asker.create(base, self._load.agent)
            except httpx.HTTPError:
                await asyncio.sleep(AGAIN)

    def read(self, record: Record, *, first: int = 0, is_restless: bool = False) -> "asyncio.Task[None]":
        """Follow a session to the end of the scene."""
        self.records.append(record)
        restless = self._chance if is_restless else None
        task = asyncio.create_task(
            follow(self.web, record, first=first, restless=restless), name=f"{record.kind} reader"
        )
        self._reading.append(task)
        return task

    def ask(self, session_id: str, prompt: str, number: int = 0, **options: str) -> "asyncio.Task[Told]":
        """Query without waiting for the answer."""
        base = self.web.bases[number % len(self.web.bases)]
        task = asyncio.create_task(self.asker.query(base, session_id, prompt, **options), name="query")
        self._asking.append(task)
        return task

    async def answered(self, within: float) -> int:
        """Wait until every query has its answer, up to so many seconds; returns how many have none."""
        if not self._asking:
            return 0
        _, hanging = await asyncio.wait(self._asking, timeout=within)
        return len(hanging)

    async def finish(self) -> None:
        """Wait for the end of everything, and judge it."""
        findings = self._findings
        if hanging := await self.answered(TURNS_END):
            findings.add("I5", f"{hanging} queries were not answered within {TURNS_END:g} s")
        began = time.monotonic()
        alive = [session_id for session_id in self.sessions if session_id not in self.deleted]
        await asyncio.gather(*(self._use_again(session_id, began) for session_id in alive))
        journal = None if self._journal is None else read_journal(self._journal)
        for session_id in alive:
            await self._judge(session_id, journal)
        for session_id in self.deleted:
            self._check(Evidence(session_id, None, self._records_of(session_id)))
        findings.checked.update(CHECKED, {"I5"}, {"I7"} if self._expected.agents_live else ())
        findings.figures.resumed += sum(record.connections > 1 for record in self.records)

    async def clear(self) -> None:
        """Let everybody go."""
        for task in (*self._reading, *self._asking):
            task.cancel()
        await asyncio.gather(*self._reading, *self._asking, return_exceptions=True)

    async def _use_again(self, session_id: str, began: float) -> None:
        """Ask until a turn has ended as it should: the session must be usable, and the readers get a last event."""
        limit = self._expected.usable_in
        number = self.sessions.index(session_id)
        told = None
        while time.monotonic() < began + 2 * limit:
            base = self.web.bases[number % len(self.web.bases)]
            told = await self.asker.query(base, session_id, self._load.last_prompt)
            if told.ending is not None:  # a refusal names the turn that is in its way
                self._last_turns.add(told.turn_id)
            wanted = self._expected.last_ending
            if told.ending is not None and wanted in (None, told.ending):
                break
            number += 1
            await asyncio.sleep(AGAIN)
        took = time.monotonic() - began
        if took > limit:
            self._findings.add(
                "I5", f"{session_id} was not usable for {took:.1f} s; the last answer was {told}"
            )
        self._findings.figures.slowest_use = max(self._findings.figures.slowest_use, took)

    async def _judge(self, session_id: str, journal: Mapping[str, Said] | None) -> None:
        found = await self._end_of(session_id)
        if found is None:
            self._findings.add("I8", f"no server tells the history of {session_id}")
            return
        log, standing = found
        self.logs[session_id] = log
        records = self._records_of(session_id)
        await self._catch_up([record for record in records if not record.has_left], len(log))
        self._check(
            Evidence(
                session_id,
                log,
                records,
                journal,
                [told for told in self.asker.told if told.session_id == session_id],
                standing,
                self._expected.endings,
                self._expected.unstarted,
                self._expected.agents_live,
            )
        )
        self._count(log)

    async def _end_of(self, session_id: str) -> tuple[list[bytes], dict[str, object]] | None:
        latest = time.monotonic() + CATCH_UP
        while True:  # on a busy machine a connection may take too long
            for base in self.web.bases:
                try:
                    standing = await self.asker.standing(base, session_id)
                    return await whole_log(self.web, base, session_id), standing
                except httpx.HTTPError:
                    continue
            if time.monotonic() > latest:
                return None
            await asyncio.sleep(AGAIN)

    async def _catch_up(self, records: list[Record], place: int) -> None:
        try:
            async with asyncio.timeout(CATCH_UP):
                await asyncio.gather(*(record.reaches(place) for record in records))
        except TimeoutError:
            for record in records:
                at = place_of(record.seen[-1].id) if record.seen else 0
                if at < place:
                    self._findings.add(
                        "I1", f"a {record.kind} reader of {record.session_id} stays at {at} of {place} events"
                    )

    def _check(self, evidence: Evidence) -> None:
        self._findings.violations += check(evidence)

    def _records_of(self, session_id: str) -> list[Record]:
        return [record for record in self.records if record.session_id == session_id]

    def _count(self, log: list[bytes]) -> None:
        figures = self._findings.figures
        figures.events += len(log)
        for turn in turns_of(log):
            if turn.id not in self._last_turns:
                figures.turns[str(turn.status)] += 1
                self._time_orphan(turn)

    def _time_orphan(self, turn: TurnInLog) -> None:
        if turn.status != "interrupted" or self.orphaned_at is None:
            return
        took = (turn.ended_at - self.orphaned_at) / 1000
        self._findings.figures.slowest_orphan = max(self._findings.figures.slowest_orphan, took)
        if took > ORPHAN_LIMIT:
            self._findings.add("I4", f"{turn.id} had lost its process and was ended {took:.1f} s later")
