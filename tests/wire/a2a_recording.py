"""Records what six turns send to callers of A2A, with ids and times made the same each time.

`python -m tests.wire.a2a_recording` writes `a2a.jsonl` anew; a changed line in review is a changed promise.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

from app import __version__
from app.agents.contract import AgentEvent
from tests.server import Client, Json, Script, Step, saying, serving, soon, until
from tests.wire.recording import TURNS, abort, written

SAMPLES = Path(__file__).parent / "a2a.jsonl"
PROVENANCE = (
    "Recorded from this server by tests/wire/a2a_recording.py. Calls, results and errors are those of the A2A "
    "specification 1.0.1 and 0.3.0 (specification), read in tests by the SDK's own types; that an answer's artifact is "
    "opened empty, the codes in metadata, and the shape of ids are this server's. Ids and times are replaced by constants."
)
NAMES = {
    "1.0": ("SendStreamingMessage", "SubscribeToTask", "GetTask", "CancelTask"),
    "0.3": ("message/stream", "tasks/resubscribe", "tasks/get", "tasks/cancel"),
}

_ID = re.compile(r"[a-z2-7]{26}")
_TIME = re.compile(r'"timestamp":"[^"]*"')


def stable(sent: str) -> str:
    """What was sent, with every id and time replaced."""
    names: dict[str, str] = {}
    sent = _ID.sub(lambda found: names.setdefault(found[0], f"{'abcdefg'[len(names)] * 26}"), sent)
    return _TIME.sub('"timestamp":"2021-06-01T12:00:00.000Z"', sent)


async def record(client: Client) -> list[Json]:
    """The exchanges of each turn, in both versions, and the card."""
    card = await client.get("/.well-known/agent-card.json")
    told = card.text.replace(client.server.url, "http://127.0.0.1:8888").replace(__version__, "0.1.0")
    lines: list[Json] = [{"provenance": PROVENANCE}, {"exchange": "GET card", "body": told}]
    question: AgentEvent = {"type": "input_required", "text": "Which city?"}
    for version in NAMES:
        for name, script in (TURNS | {"question": lambda: saying(question)}).items():
            lines += await _turn(client, version, name, script())
        lines += await _abort(client, version)
    return lines


async def _call(client: Client, version: str, method: str, params: Json) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"A2A_Version": version} if version == "1.0" else {}
    return (await client.post("/a2a", body, **headers)).text


def _message(version: str, session_id: str) -> Json:
    part = {"text": "Hello!"} if version == "1.0" else {"kind": "text", "text": "Hello!"}
    role = "ROLE_USER" if version == "1.0" else "user"
    return {"message": {"messageId": "message-1", "contextId": session_id, "role": role, "parts": [part]}}


async def _turn(client: Client, version: str, name: str, script: Script) -> list[Json]:
    session_id = await client.session(script)
    stream, _, get, _ = NAMES[version]
    streamed = await _call(client, version, stream, _message(version, session_id))
    task_id = (await client.page(session_id, types="agent_run_start"))["events"][0]["data"]["turnId"]
    got = await _call(client, version, get, {"id": task_id})
    return [_line(version, name, exchange, sent) for exchange, sent in ((stream, streamed), (get, got))]


async def _abort(client: Client, version: str) -> list[Json]:
    step = Step()
    session_id = await client.session(abort(step))
    stream, subscribe, _, cancel = NAMES[version]
    streaming = asyncio.create_task(_call(client, version, stream, _message(version, session_id)))
    await soon(step.reached.wait())
    async with client.stream(session_id) as begun:  # what the subscriber is told first is all of it
        await begun.upto("tool_execution_start")
    task_id = (await client.status(session_id))["turnId"]
    open_ones = client.server.parts.parts.readers._open

    def readers() -> int:
        return sum(each.outlet._log.session_id == session_id for each in open_ones)

    await until(lambda: readers() == 1)
    subscribing = asyncio.create_task(_call(client, version, subscribe, {"id": task_id}))
    await until(lambda: readers() == 2)
    canceled = await _call(client, version, cancel, {"id": task_id})
    late = await _call(client, version, cancel, {"id": task_id})
    return [
        _line(version, "abort", stream, await soon(streaming)),
        _line(version, "abort", subscribe, await soon(subscribing)),
        _line(version, "abort", cancel, canceled),
        _line(version, "abort", cancel, late),
    ]


def _line(version: str, turn: str, exchange: str, sent: str) -> Json:
    return {"version": version, "turn": turn, "exchange": exchange, "body": stable(sent)}


async def _main() -> None:
    from app.postgres.embedded import throwaway_postgres

    async with throwaway_postgres() as postgres, serving(postgres.dsn) as server:
        lines = await record(await server.client())
    SAMPLES.write_text(written(lines))


def main() -> Any:
    """Write the samples anew."""
    return asyncio.run(_main())


if __name__ == "__main__":
    main()
