"""A server whose agent is a remote A2A agent: its turns are in the log, and any replica goes on with them."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from app.agents.adapters.a2a.agent import A2AAgent
from app.settings import A2ARemote
from tests.a2a.calling import Caller, state_of, texts_of
from tests.a2a.test_contract import waiting
from tests.agents.a2a_peer import A2APeer, piece, status
from tests.conftest import Server, own_database
from tests.server import Client, Step, said, saying, serving, soon

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


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_server_behind_a_server_asks_is_answered_and_is_aborted(
    version: str, embedded_server: Server
) -> None:
    """A2A on both sides: a task in front is a task behind, and ends alike."""
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(own_database(embedded_server)) for _ in range(2)]
        behind = await stack.enter_async_context(serving(databases[0]))
        agent: Any = A2AAgent(f"{behind.url}/a2a", options=A2ARemote.model_validate({"version": version}))
        stack.push_async_callback(agent.aclose)
        front = await (await stack.enter_async_context(serving(databases[1], agent))).client()
        caller, inner = Caller(front, version), Caller(await behind.client())
        step = Step()
        behind.agent.for_prompt |= {
            "Weather?": saying(said("Let me see."), {"type": "input_required", "text": "Which city?"}),
            "Aarhus": saying(said("It rains."), {"type": "completed", "data": {"mm": 5}}, ends=False),
            "More": waiting(step, said("It will ")),
        }

        asking = await caller.send("Weather?")
        assert (state_of(asking), texts_of(asking)) == ("input-required", ["Let me see.\n\nWhich city?"])
        answered = await caller.send("Aarhus", taskId=asking["id"])
        assert (answered["id"], state_of(answered)) == (asking["id"], "completed")
        assert texts_of(answered) == ["Let me see.\n\nWhich city?", "It rains."]

        async with caller.send_stream("More", contextId=asking["contextId"]) as told:
            await soon(step.reached.wait())
            [running] = (await inner.list(status="TASK_STATE_WORKING"))["tasks"]
            task_id = (await told.first())[1]["id"]
            canceled = await caller.cancel(task_id)
            assert state_of(canceled) == "canceled"
            assert [state_of(body) for kind, body in await told.rest() if kind == "status"][-1] == "canceled"
        await soon(step.left.wait())
        assert state_of(await inner.get(running["id"])) == "canceled"
        tasks = (await inner.list(contextId=running["contextId"]))["tasks"]
        assert [state_of(task) for task in tasks] == ["canceled", "completed"]
