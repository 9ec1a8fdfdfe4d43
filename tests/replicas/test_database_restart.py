"""Postgres is restarted under two replicas: their turns go on, and nobody takes them for dead."""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope
from app.postgres.embedded import throwaway_postgres
from app.postgres.migrations import migrate
from tests.replicas.processes import pair_of_replicas, poll
from tests.server import COMPLETED, Client, Json, Step, places, said, soon


async def ready(client: Client, code: int) -> Json:
    answer = await poll(lambda: client.get("/readyz"), lambda answer: answer.status_code == code)
    found: Json = answer.json()
    return found


async def test_turns_go_on_over_a_restart_of_the_database() -> None:
    """F3, F4."""
    steps = [Step() for _ in range(3)]

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for part, step in enumerate(steps):
            for number in range(50):
                yield said(f"{part}.{number} ")
            await step.wait()
        yield COMPLETED

    words = "".join(f"{part}.{number} " for part in range(3) for number in range(50))
    async with throwaway_postgres() as postgres:
        await migrate(postgres.dsn)
        async with pair_of_replicas(postgres.dsn) as pair:
            session = await pair.one.session(agent)
            async with pair.one.stream(session) as here, pair.two.stream(session) as there:
                query = asyncio.create_task(pair.one.query(session))
                await soon(steps[0].reached.wait())
                await postgres.stop()
                steps[0].passed.set()
                await soon(steps[1].reached.wait())
                for client in (pair.one, pair.two):
                    assert "database" in str(await ready(client, 503))
                await postgres.start()
                for client in (pair.one, pair.two):
                    await ready(client, 200)
                steps[1].passed.set()
                steps[2].passed.set()
                answer = (await soon(query)).json()
                assert (answer["status"], answer["response"]) == ("completed", words)
                seen = [await stream.upto("agent_run_end") for stream in (here, there)]
            log = await pair.two.events(session)
            assert seen == [log, log]
            assert places(log) == list(range(1, len(log) + 1))
            deltas = [event["data"]["delta"] for event in log if event["type"] == "assistant_message_delta"]
            assert "".join(deltas) == words
            assert pair.two.server.parts.parts.supervisor.ended == {}
            assert (await pair.two.query(session, onBusy="reject")).json()["status"] == "completed"
