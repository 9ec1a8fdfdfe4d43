"""Records what six turns send on each way out of a dialect, with ids and times made the same each time.

`python -m tests.wire.recording` writes the samples anew; a changed line in review is a changed promise.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.server import COMPLETED, Client, Json, Script, Step, said, saying, serving, soon

SAMPLES = Path(__file__).parent / "tarko.jsonl"
FLAT_SAMPLES = Path(__file__).parent / "tarko_ui.jsonl"
PROVENANCE = (
    "Recorded from this server by tests/wire/recording.py. The envelope, the types and the frames are those of Tarko's "
    "Agent Protocol page, chapter 'Server Protocol' (docs); agent_run_*, assistant_thinking_*, messageId, elapsedMs, "
    "rawContent, error codes and ids are this server's extensions (specification: DESIGN 7 and 11). Ids, times and "
    "durations are replaced by constants."
)

FLAT_PROVENANCE = (
    "Recorded from this server by tests/wire/recording.py. Routes, bodies, frames and flat events are those of Tarko's "
    "reference server (runtime), as the official UI needs them: agent_run_end last, toolCalls with argument text before "
    "a result, messageId on all that an assistant says. Deliberate differences: each tool call in a message of its own, "
    "the partial text of an abort, an abort that succeeds when nothing runs, role on messages (docs/decisions). Ids, "
    "times and durations are replaced by constants."
)
FLAT = "/ui/api/v1/sessions"


def text() -> Script:
    return saying(said("Once upon"), said(" a time"))


def thinking() -> Script:
    return saying(
        {"type": "thinking", "delta": "Let me "},
        {"type": "thinking", "delta": "see."},
        said("Here it is."),
        {"type": "completed", "data": {"answer": 42}},
        ends=False,
    )


def parallel_tools() -> Script:
    return saying(
        said("I look."),
        {"type": "tool_started", "id": "a", "name": "weather", "args": {"city": "Aarhus"}},
        {"type": "tool_started", "id": "b", "name": "clock", "args": "UTC"},
        {"type": "tool_ended", "id": "b", "isError": False, "content": "12:00"},
        {"type": "tool_ended", "id": "a", "isError": True, "content": {"reason": "offline"}},
        {"type": "retrying", "attempt": 1, "maxAttempts": 3, "delayMs": 10, "reason": "offline"},
        said("It is noon."),
    )


def failure() -> Script:
    failed: AgentEvent = {"type": "failed", "details": "No luck.", "retryable": True, "code": "unlucky"}
    return saying(said("Partial"), failed, ends=False)


def crash() -> Script:
    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("Partial")
        raise RuntimeError("it broke")

    return agent


def abort(step: Step) -> Script:
    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("Partial")
        yield {"type": "tool_started", "id": "a", "name": "sleep", "args": {}}
        await step.wait()
        yield COMPLETED

    return agent


TURNS: dict[str, Callable[[], Script]] = {
    "text": text,
    "thinking": thinking,
    "parallel tools": parallel_tools,
    "failure": failure,
    "crash": crash,
}

_STABLE = (
    (re.compile(r"[a-z2-7]{26}"), ""),
    (re.compile(r'"(timestamp|createdAt|updatedAt|configuredAt|startTime)":\d{13}'), r'"\1":1622548800000'),
    (re.compile(r'"(elapsedMs|durationMs|thinkingDurationMs|ttftMs|ttltMs)":\d+'), r'"\1":0'),
    (re.compile(r"retry: \d+"), "retry: 2000"),
)


def stable(sent: str) -> str:
    """What was sent, with every id, time and duration replaced."""
    names: dict[str, str] = {}
    part, rest = _STABLE[0][0], _STABLE[1:]
    sent = part.sub(lambda found: names.setdefault(found[0], f"{'abcdefg'[len(names)] * 26}"), sent)
    for pattern, constant in rest:
        sent = pattern.sub(constant, sent)
    return sent


async def record(client: Client) -> list[Json]:
    """The exchanges, one for each way out of each turn."""
    lines: list[Json] = [{"provenance": PROVENANCE}]
    for name, script in TURNS.items():
        lines += await _turn(client, name, script())
    lines += await _abort(client)
    return lines


async def _turn(client: Client, name: str, script: Script) -> list[Json]:
    created = await client.post("/api/v1/sessions/create", {"name": "My Session", "tags": ["tag1", "tag2"]})
    session_id = created.json()["sessionId"]
    client.server.agent.in_session[session_id] = script
    answer = await client.query(session_id, "Hello, how can you help?")
    async with client.query_stream(session_id, "Tell me a story") as stream:
        await stream.rest()
    async with client.stream(session_id, after="1") as live:
        await live.upto("agent_run_end")
    history = await client.get("/api/v1/sessions/events", sessionId=session_id, limit=2)
    return [
        _line(name, "POST /api/v1/sessions/create", created.text, created.status_code),
        _line(name, "POST /api/v1/sessions/query", answer.text, answer.status_code),
        _line(name, "POST /api/v1/sessions/query/stream", stream.read, 200),
        _line(name, "GET /api/v1/sessions/events/stream?after=1", live.read, 200),
        _line(name, "GET /api/v1/sessions/events?limit=2", history.text, history.status_code),
    ]


async def _abort(client: Client) -> list[Json]:
    step = Step()
    session_id = await client.session(abort(step))
    async with client.socket() as socket:
        heard: list[str] = []
        said_by_client: list[Json] = [
            {"type": "join_session", "sessionId": session_id},
            {"type": "send_query", "sessionId": session_id, "query": "Hello!"},
        ]
        for message in said_by_client:
            await socket.say(message)
        await soon(step.reached.wait())
        said_by_client.append({"type": "abort_query", "sessionId": session_id})
        await socket.say(said_by_client[-1])
        while not heard or json.loads(heard[-1])["type"] != "abort_result":
            heard.append(await socket.hear_text())
        said_by_client.append({"type": "leave_session", "sessionId": session_id, "requestId": "r1"})
        await socket.say(said_by_client[-1])
        heard.append(await socket.hear_text())
        said_by_client.append({"type": "dance", "requestId": "r2"})
        await socket.say(said_by_client[-1])
        heard.append(await socket.hear_text())
    late = await client.post("/api/v1/sessions/abort", {"sessionId": session_id})
    conversation = "\n".join([*map(json.dumps, said_by_client), *heard])
    lines = stable(conversation).splitlines()
    count = len(said_by_client)
    return [
        *({"turn": "abort", "exchange": "/ws", "client": json.loads(line)} for line in lines[:count]),
        *({"turn": "abort", "exchange": "/ws", "server": line} for line in lines[count:]),
        _line("abort", "POST /api/v1/sessions/abort", late.text, late.status_code),
    ]


async def record_flat(client: Client) -> list[Json]:
    """The exchanges of the flat dialect."""
    lines: list[Json] = [{"provenance": FLAT_PROVENANCE}]
    for name, script in TURNS.items():
        lines += await _flat_turn(client, name, script())
    lines += await _flat_abort(client)
    return lines


async def _flat_turn(client: Client, name: str, script: Script) -> list[Json]:
    created = await client.post(f"{FLAT}/create", "")
    session_id = created.json()["sessionId"]
    client.server.agent.in_session[session_id] = script
    body = {"sessionId": session_id, "query": "Hello, how can you help?"}
    async with client.http.stream("POST", f"{FLAT}/query/stream", json=body) as response:
        stream = (await soon(response.aread())).decode()
    history = await client.get(f"{FLAT}/events", sessionId=session_id)
    answer = await client.post(f"{FLAT}/query", body)
    return [
        _line(name, f"POST {FLAT}/create", created.text, created.status_code),
        _line(name, f"POST {FLAT}/query/stream", stream, 200),
        _line(name, f"GET {FLAT}/events", history.text, history.status_code),
        _line(name, f"POST {FLAT}/query", answer.text, answer.status_code),
    ]


async def _flat_abort(client: Client) -> list[Json]:
    step = Step()
    session_id = await client.session(abort(step))
    names: dict[str, str] = {"sessionId": session_id}

    async def exchange(method: str, path: str, body: Json | None = None) -> Json:
        if method == "GET":
            answer = await client.get(f"{FLAT}/{path}", **names)
        else:
            answer = await client.post(f"{FLAT}/{path}", names | (body or {}))
        return _line("abort", f"{method} {FLAT}/{path}", answer.text, answer.status_code)

    running = asyncio.create_task(exchange("POST", "query/stream", {"query": "Hello!"}))
    await soon(step.reached.wait())
    async with client.stream(session_id) as stream:
        await stream.upto("tool_execution_start")
    meanwhile = [
        await exchange(method, path, body)
        for method, path, body in (
            ("GET", "status", None),
            ("GET", "events", None),
            ("POST", "query/stream", {"query": "Me, too!"}),
            ("POST", "query", {"query": "Me, too!"}),
            ("POST", "share", {"upload": False}),
            ("POST", "abort", None),
        )
    ]
    streamed = await soon(running)
    afterwards = [
        await exchange(method, path)
        for method, path in (("GET", "status"), ("GET", "events"), ("POST", "abort"))
    ]
    return [*meanwhile, streamed, *afterwards]


def _line(turn: str, exchange: str, sent: str, status: int) -> Json:
    return {"turn": turn, "exchange": exchange, "status": status, "body": stable(sent)}


def written(lines: list[Json]) -> str:
    """The samples as they lie in the file."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


async def _main() -> None:
    from app.postgres.embedded import throwaway_postgres

    async with throwaway_postgres() as postgres, serving(postgres.dsn) as server:
        client = await server.client()
        for path, recorded in ((SAMPLES, record), (FLAT_SAMPLES, record_flat)):
            path.write_text(written(await recorded(client)))


def main() -> Any:
    """Write the samples anew."""
    return asyncio.run(_main())


if __name__ == "__main__":
    main()
