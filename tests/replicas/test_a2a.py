"""Tasks on two replicas, and after a restart: either serves them, and a task that lost its process says so."""

from pathlib import Path

from tests.a2a.calling import Caller, accumulated, message_ids, state_of, texts_of
from tests.a2a.test_contract import asking, waiting
from tests.conftest import Server, own_database
from tests.replicas.processes import Pair, replica
from tests.server import Step, said, soon


async def test_the_other_replica_gets_lists_follows_and_cancels(pair: Pair) -> None:
    step = Step()
    pair.agent.for_prompt["two replicas"] = waiting(step, said("before "))
    for version in ("1.0", "0.3"):
        one, two = Caller(pair.one, version), Caller(pair.two, version)
        message = one.message("two replicas")
        step.reached.clear()
        async with one.send_stream(message) as told:
            task = (await told.first())[1]
            while texts_of(await told.until("artifact")) != ["before "]:
                pass
            await soon(step.reached.wait())
            assert state_of(await two.get(task["id"])) == "working"
            listed = await Caller(pair.two).list(contextId=task["contextId"])
            assert message_ids(listed["tasks"][0]) == [message["messageId"]]
            async with two.subscribe(task["id"]) as followed:
                first = await followed.first()
                assert texts_of(first[1]) == ["before "]
                assert (
                    await two.error("SendMessage", {"message": two.message(contextId=task["contextId"])})
                    == -32004
                )
                async with two.send_stream(message) as repeated:
                    assert (await repeated.first())[1]["id"] == task["id"]
                    assert state_of(await two.cancel(task["id"])) == "canceled"
                    for stream in (told, followed, repeated):
                        assert state_of(await stream.until("status", "canceled")) == "canceled"


async def test_a_question_is_answered_on_the_other_replica(pair: Pair) -> None:
    pair.agent.for_prompt |= {"ask": asking(), "Aarhus": asking()}
    one, two = Caller(pair.one), Caller(pair.two)
    task = await one.send("ask")
    async with one.subscribe(task["id"]) as told:
        first = await told.first()
        await two.send("Aarhus", taskId=task["id"])
        events = [first, *await told.rest()]
    assert state_of(events[-1][1]) == "completed"
    assert list(accumulated(events).values()) == ["Let me see. ", "It rains in Aarhus."]


async def test_a_task_whose_server_was_killed_ends_failed_and_is_found(
    embedded_server: Server, tmp_path: Path
) -> None:
    """GetTask says how it ended, SubscribeToTask ends, ListTasks finds the message, and the context goes on."""
    async with own_database(embedded_server) as url, replica(url) as other:
        async with replica(url) as first:
            caller = Caller(first.client)
            message = caller.message(f"wait {tmp_path}")
            async with caller.send_stream(message) as told:
                task = (await told.first())[1]
                while texts_of(await told.until("artifact")) != ["waiting"]:
                    pass
                survivor = Caller(other.client)
                async with survivor.subscribe(task["id"]) as followed:
                    await followed.first()
                    await first.kill()
                    failed = await followed.until("status", "failed")
        assert failed["metadata"]["code"] == "server_restarted"
        async with replica(url) as restarted:
            for client in (other.client, restarted.client):
                caller = Caller(client)
                got = await caller.get(task["id"])
                assert (state_of(got), texts_of(got)) == ("failed", ["waiting"])
                [listed] = (await caller.list(contextId=task["contextId"]))["tasks"]
                assert message_ids(listed) == [message["messageId"]]
                assert await caller.error("SubscribeToTask", {"id": task["id"]}) == -32004
                async with caller.send_stream(message) as repeated:
                    [(kind, again)] = await repeated.rest()
                assert (kind, again["id"]) == ("task", task["id"])
            assert state_of(await caller.send("hello", contextId=task["contextId"])) == "completed"
