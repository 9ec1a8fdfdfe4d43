"""The official Python SDK, as a client of this server, over both versions."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from a2a.client import Client as SdkClient
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.a2a.test_contract import asking, plays, waiting
from tests.server import Client, Step, said, soon

STATES = pb.TaskState


@pytest.fixture(params=["1.0", "0.3"])
async def sdk(request: pytest.FixtureRequest, client: Client) -> AsyncIterator[SdkClient]:
    """A client that has read the card, and speaks one of its interfaces."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        card = await A2ACardResolver(http, client.server.url).get_agent_card()
        kept = [each for each in card.supported_interfaces if each.protocol_version == request.param]
        assert len(kept) == 1
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        sdk = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        yield sdk


def request(text: str, context_id: str = "", task_id: str = "") -> pb.SendMessageRequest:
    message = pb.Message(
        message_id=str(uuid4()),
        role=pb.Role.ROLE_USER,
        parts=[pb.Part(text=text)],
        context_id=context_id,
        task_id=task_id,
    )
    return pb.SendMessageRequest(message=message)


def told(event: pb.StreamResponse) -> pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent:
    kind = event.WhichOneof("payload")
    assert kind in ("task", "status_update", "artifact_update")
    found: pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent = getattr(event, kind)
    return found


def text_of(events: list[pb.StreamResponse]) -> str:
    return "".join(
        part.text
        for event in events
        if event.HasField("artifact_update")
        for part in event.artifact_update.artifact.parts
    )


async def test_streaming(sdk: SdkClient) -> None:
    events = [event async for event in sdk.send_message(request("stream me"))]
    assert text_of(events) == "Hello! I'm here to help."
    states = [event.status_update.status.state for event in events if event.HasField("status_update")]
    assert states == [STATES.TASK_STATE_WORKING, STATES.TASK_STATE_COMPLETED]


async def test_a_cut_stream_is_subscribed_to_again(sdk: SdkClient, client: Client) -> None:
    step = Step()
    plays(client, "cut me", waiting(step, said("before ")))
    stream = sdk.send_message(request("cut me"))
    task = told(await anext(stream))
    assert isinstance(task, pb.Task)
    await soon(step.reached.wait())
    await stream.aclose()  # type: ignore[attr-defined]

    events = []
    async for event in sdk.subscribe(pb.SubscribeToTaskRequest(id=task.id)):
        events.append(event)
        step.passed.set()

    first = told(events[0])
    assert isinstance(first, pb.Task)
    assert "".join(part.text for part in first.artifacts[0].parts) + text_of(events) == "before done"
    got = await sdk.get_task(pb.GetTaskRequest(id=task.id))
    assert got.status.state == STATES.TASK_STATE_COMPLETED
    assert [part.text for part in got.artifacts[0].parts] == ["before done"]


async def test_cancel_and_typed_errors(sdk: SdkClient, client: Client) -> None:
    step = Step()
    plays(client, "cancel me", waiting(step))
    stream = sdk.send_message(request("cancel me"))
    task = told(await anext(stream))
    assert isinstance(task, pb.Task)
    await soon(step.reached.wait())
    with pytest.raises(UnsupportedOperationError):
        async for _ in sdk.send_message(request("busy", context_id=task.context_id)):
            pass
    canceled = await sdk.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert canceled.status.state == STATES.TASK_STATE_CANCELED
    states = [event.status_update.status.state async for event in stream if event.HasField("status_update")]
    assert states[-1] == STATES.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await sdk.cancel_task(pb.CancelTaskRequest(id=task.id))
    with pytest.raises(TaskNotFoundError):
        await sdk.get_task(pb.GetTaskRequest(id="turn_none"))


async def test_question_and_answer(sdk: SdkClient, client: Client) -> None:
    plays(client, "ask", asking())
    plays(client, "Aarhus", asking())
    events = [event async for event in sdk.send_message(request("ask"))]
    [asked] = [
        event.status_update
        for event in events
        if event.status_update.status.state == STATES.TASK_STATE_INPUT_REQUIRED
    ]
    assert [part.text for part in asked.status.message.parts] == ["Which city?"]
    answer = request("Aarhus", task_id=asked.task_id, context_id=asked.context_id)
    events = [event async for event in sdk.send_message(answer)]
    assert text_of(events) == "It rains in Aarhus."
    got = await sdk.get_task(pb.GetTaskRequest(id=asked.task_id))
    assert (got.status.state, len(got.history)) == (STATES.TASK_STATE_COMPLETED, 3)


async def test_list(client: Client) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        card = await A2ACardResolver(http, client.server.url).get_agent_card()
        sdk = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        [sent] = [told(event) async for event in sdk.send_message(request("list me"))]
        listed = await sdk.list_tasks(pb.ListTasksRequest(context_id=sent.context_id))
    assert isinstance(sent, pb.Task)
    assert [task.id for task in listed.tasks] == [sent.id]
    assert listed.tasks[0].history[0].parts[0].text == "list me"


async def test_a_slow_tool_is_waited_for(sdk: SdkClient, client: Client) -> None:
    """Nothing is said for a while, and the stream holds."""

    async def slow(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "tool_started", "id": "t", "name": "sleep", "args": {}}
        await asyncio.sleep(0)
        yield {"type": "tool_ended", "id": "t", "isError": False, "content": ""}
        yield said("done")
        yield {"type": "completed"}

    plays(client, "slow", slow)
    assert text_of([event async for event in sdk.send_message(request("slow"))]) == "done"
