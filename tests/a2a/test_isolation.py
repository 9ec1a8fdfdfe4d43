"""Two principals on one server: neither sees, follows or stops what is the other's, nor learns that it is there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.a2a.calling import Caller, state_of
from tests.a2a.test_contract import waiting
from tests.conftest import Server, own_database
from tests.server import Scripted, Serving, Step, serving, soon

ALICE, BOB = "alice-token-alice-token", "bob-token-bob-token-bob"


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    async with (
        own_database(embedded_server) as url,
        serving(url, tokens=f"alice={ALICE},bob={BOB}") as server,
    ):
        yield server


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_task_of_somebody_else_is_one_that_never_was(shared: Serving, version: str) -> None:
    alice, bob = [Caller(await shared.client(token), version) for token in (ALICE, BOB)]
    step = Step()
    shared.agent.for_prompt["secret"] = waiting(step)
    sending = asyncio.create_task(alice.send("secret", contextId=f"thread-{version}"))
    await soon(step.reached.wait())
    [listed] = (await Caller(alice.client).list(contextId=f"thread-{version}"))["tasks"]

    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert await bob.error(method, {"id": listed["id"]}) == -32001
    assert await bob.error("SendMessage", {"message": bob.message(taskId=listed["id"])}) == -32001
    everything = (await Caller(bob.client).list())["tasks"]
    assert listed["id"] not in [task["id"] for task in everything]
    assert (await Caller(bob.client).list(contextId=f"thread-{version}"))["tasks"] == []
    his = await bob.send(contextId=f"thread-{version}")
    assert (his["contextId"], state_of(his)) == (f"thread-{version}", "completed")

    step.passed.set()
    task = await soon(sending)
    assert (task["id"], state_of(task)) == (listed["id"], "completed"), "somebody touched it"
    assert len((await Caller(alice.client).list(contextId=f"thread-{version}"))["tasks"]) == 1


async def test_the_same_message_id_of_two_principals_is_two_turns(shared: Serving) -> None:
    alice, bob = [Caller(await shared.client(token)) for token in (ALICE, BOB)]
    params = {"message": alice.message()}
    first, second = [(await caller.call("SendMessage", params))["task"] for caller in (alice, bob)]
    assert first["id"] != second["id"]
    assert first["contextId"] != second["contextId"]


async def test_the_session_id_of_somebody_else_names_a_context_of_ones_own(shared: Serving) -> None:
    alice, bob = [Caller(await shared.client(token)) for token in (ALICE, BOB)]
    hers = await alice.send()
    his = await bob.send(contextId=hers["contextId"])
    assert his["contextId"] == hers["contextId"]
    assert [task["id"] for task in (await alice.list(contextId=hers["contextId"]))["tasks"]] == [hers["id"]]


async def test_the_tasks_of_another_agent_are_not_found(embedded_server: Server) -> None:
    """A database may have served another agent before; nor does a name lead to its contexts."""
    other = Scripted()
    other.name = "other"
    async with own_database(embedded_server) as url:
        async with serving(url) as server:
            caller = Caller(await server.client())
            named, task = await caller.send(contextId="name"), await caller.send()
        async with serving(url, other) as server:
            caller = Caller(await server.client())
            for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                assert await caller.error(method, {"id": task["id"]}) == -32001
            assert (await caller.list())["tasks"] == []
            mine = await caller.send(contextId=task["contextId"])
            assert (await caller.list(contextId=task["contextId"]))["tasks"][0]["id"] == mine["id"]
            assert (await caller.list(contextId="name"))["tasks"] == []
            assert (await caller.send(contextId="name"))["id"] != named["id"]
