"""A server whose agent is a remote A2A agent: its turns are in the log, and any replica goes on with them."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from app.agents.adapters.a2a.agent import A2AAgent
from tests.agents.a2a_peer import A2APeer, piece, status
from tests.conftest import Server, own_database
from tests.server import Client, serving

ASKING = [piece("answer", "Let me see."), status("input-required", "Which city?")]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_question_is_answered_on_another_replica(version: str, embedded_server: Server) -> None:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(own_database(embedded_server))
        peer = await stack.enter_async_context(A2APeer(ASKING, version))

        async def replica() -> Client:
            agent: Any = A2AAgent(peer.url)
            stack.push_async_callback(agent.aclose)
            return await (await stack.enter_async_context(serving(database, agent))).client()

        one, other = await replica(), await replica()
        session = await one.session()
        asked = (await one.query(session, "Weather?")).json()
        assert (asked["response"], asked["status"]) == ("Let me see.\n\nWhich city?", "completed")

        peer.steps = [
            *ASKING,
            piece("second", "It rains in Aarhus.", {"data": {"mm": 5}}),
            status("completed"),
        ]
        peer.streams = False
        answered = (await other.query(session, "Aarhus")).json()
        assert (answered["response"], answered["status"]) == ("It rains in Aarhus.", "completed")
        assert (peer.taken[1]["taskId"], peer.taken[1]["contextId"]) == ("task-1", "context-1")
        events = await other.events(session)
        ends = [event["data"] for event in events if event["type"] == "agent_run_end"]
        assert ends[1]["data"] == {"mm": 5}
        [question] = [event for event in events if event["type"] == "input_required"]
        assert question["data"] == {"text": "Which city?"}
