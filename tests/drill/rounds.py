"""Rounds of the drill: turns and readers, `kill -9` at a random instant, a restart, then the checker."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.drill.checker import check, read_journal
from tests.drill.reader import Record, follow
from tests.drill.server import Victim

TURNS = 8
READERS = 2
WORDS = 150
PAUSES_MS = (0, 2, 10)
LATEST_KILL = 1.2


@dataclass(slots=True)
class Findings:
    """What the rounds found."""

    rounds: int = 0
    turns: Counter[str] = field(default_factory=Counter)
    events: int = 0
    resumed: int = 0
    slowest_start: float = 0.0
    violations: list[tuple[str, str]] = field(default_factory=list)


async def drill(directory: Path, rounds: int, seed: int) -> Findings:
    """Run so many rounds in a directory of their own."""
    chance = random.Random(seed)  # noqa: S311 - a drill must be repeatable
    findings = Findings()
    victim = Victim(directory)
    await victim.start()
    try:
        for _ in range(rounds):
            await _round(victim, chance, findings)
    finally:
        code = await victim.stop()
    if code != 0:
        findings.violations.append(("I5 usable", f"the server stopped with {code}"))
    return findings


async def _round(victim: Victim, chance: random.Random, findings: Findings) -> None:
    async with httpx.AsyncClient(base_url=victim.base, timeout=10) as client:
        sessions = [await _create(client) for _ in range(TURNS)]
    records = [Record(session_id) for session_id in sessions for _ in range(READERS)]
    readers = [asyncio.create_task(follow(victim.base, record)) for record in records]
    queries = [asyncio.create_task(_query(victim.base, s, chance.choice(PAUSES_MS))) for s in sessions]
    await asyncio.sleep(chance.uniform(0, LATEST_KILL))
    await victim.kill()
    await asyncio.gather(*queries)
    findings.slowest_start = max(findings.slowest_start, await victim.start())
    await _ask_again(victim, sessions)
    await asyncio.gather(*readers)
    await _check(victim, records, findings)


async def _create(client: httpx.AsyncClient) -> str:
    answer = await client.post("/api/v1/sessions/create")
    return str(answer.json()["sessionId"])


async def _query(base: str, session_id: str, pause: int) -> None:
    body = {"sessionId": session_id, "query": f"{WORDS} {pause}"}
    async with httpx.AsyncClient(base_url=base, timeout=30) as client:
        try:
            await client.post("/api/v1/sessions/query", json=body)
        except httpx.HTTPError:
            return


async def _ask_again(victim: Victim, sessions: list[str]) -> None:
    """A session whose query never arrived has no turn: ask there again, so that every reader sees an ending."""
    async with httpx.AsyncClient(base_url=victim.base, timeout=30) as client:
        for session_id in sessions:
            page = await client.get(
                "/api/v1/sessions/events", params={"sessionId": session_id, "types": "agent_run_start"}
            )
            if not page.json()["events"]:
                await _query(victim.base, session_id, 0)


async def _check(victim: Victim, records: list[Record], findings: Findings) -> None:
    journal = read_journal(victim.journal.read_text() if victim.journal.exists() else "")
    async with httpx.AsyncClient(base_url=victim.base, timeout=30) as client:
        for session_id in dict.fromkeys(record.session_id for record in records):
            log = await _whole_log(client, session_id)
            mine = [record for record in records if record.session_id == session_id]
            findings.violations += check(log, mine, journal)
            findings.events += len(log)
            findings.turns[_status(log)] += 1
    findings.resumed += sum(record.connections > 1 for record in records)
    findings.rounds += 1


async def _whole_log(client: httpx.AsyncClient, session_id: str) -> list[bytes]:
    """The log's events as the bytes that were sent."""
    events: list[bytes] = []
    after = "0"
    while True:
        page = await client.get(
            "/api/v1/sessions/events",
            params={"sessionId": session_id, "after": after, "deltas": "true", "limit": 1000},
        )
        body = page.content
        inner = body[body.index(b"[") + 1 : body.rindex(b"]")]
        events += _split(inner)
        answer = page.json()
        if not answer["hasMore"]:
            return events
        after = answer["nextAfter"]


def _split(joined: bytes) -> list[bytes]:
    """The envelopes of a page; every one begins with its id, and no string can hold an unescaped quote."""
    start = b'{"id":"evt_'
    return [start + part.rstrip(b",") for part in joined.split(start)[1:]]


def _status(log: list[bytes]) -> str:
    for status in ("completed", "interrupted", "failed", "aborted"):
        if f'"status":"{status}"'.encode() in log[-1]:
            return status
    return "none"
