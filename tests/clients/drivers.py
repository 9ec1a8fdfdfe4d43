"""Both clients, and both surfaces of the Python one, behind one word: run a job, get what was seen."""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tarko_client import AsyncClient, Backoff, Client, ClientError, ConnectionState
from tarko_client.reading import Transport
from tests.conftest import REQUIRE_ALL

ROOT = Path(__file__).parents[2]
TYPESCRIPT = ROOT / "clients" / "typescript"
BASE_MS, LONGEST_MS = 1, 2
# More than a server needs to start; and few enough that a reader whose server has gone with its test ends too.
TRIES = 40_000
PATIENCE = 60.0
LINE = 64 * 1024 * 1024


@dataclass(frozen=True)
class Job:
    """What a client is to do: `follow` or `stream`. `abort_at`: abort the turn when this type is seen; `stop_at`: that
    is enough; `stop_after`: so many events are.
    """

    url: str
    session: str
    transport: Transport = "sse"
    do: str = "follow"
    after: int | str | None = None
    from_now: bool = False
    abort_at: str | None = None
    stop_at: str | None = None
    stop_after: int | None = None


@dataclass(frozen=True)
class Result:
    """The events as JSON values, the code of the error that ended it, and the states of the connection in order."""

    events: list[Any]
    error: str | None
    states: list[str]


Run = Callable[[Job], Coroutine[Any, Any, Result]]


def unable(missing: str) -> NoReturn:
    """Skip, saying why; fail where everything is required."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{REQUIRE_ALL}=1, but {missing}", pytrace=False)
    pytest.skip(f"NOT TESTED with the TypeScript client: {missing}")


def node() -> str:
    """Node, with what `make test` installs for it."""
    found = shutil.which("node")
    if found is None:
        unable("there is no node on this machine")
    if not (TYPESCRIPT / "node_modules" / ".bin" / "tsc").exists():
        unable(f"what it is built with is not installed: run `npm install` in {TYPESCRIPT.relative_to(ROOT)}")
    return found


@cache
def built(directory: Path) -> Path:
    """The client, compiled into the directory; returns its entry."""
    compiler = TYPESCRIPT / "node_modules" / ".bin" / "tsc"
    subprocess.run(
        [compiler, "-p", TYPESCRIPT / "tsconfig.json", "--outDir", directory],
        check=True,
        capture_output=True,
        timeout=60,
    )
    (directory / "package.json").write_text('{"type": "module"}')
    return directory / "index.js"


async def blocking(job: Job) -> Result:
    """The blocking client, in a thread."""
    return await asyncio.to_thread(_blocking, job)


def _backoff() -> Backoff:
    return Backoff(base=BASE_MS / 1000, longest=LONGEST_MS / 1000, tries=TRIES)


def _blocking(job: Job) -> Result:
    states: list[ConnectionState] = []
    seen: list[Any] = []
    error = None
    with Client(job.url, backoff=_backoff()) as client:
        session = client.session(job.session)
        if job.do == "stream":
            reading = session.stream("Hi", on_state=states.append)
        else:
            reading = session.follow(
                after=job.after, from_now=job.from_now, transport=job.transport, on_state=states.append
            )
        try:
            with closing(reading) as events:
                for event in events:
                    seen.append(json.loads(event.text))
                    if event.type == job.abort_at:
                        session.abort()
                    if len(seen) == job.stop_after or event.type == job.stop_at:
                        break
        except ClientError as raised:
            error = raised.code
    return Result(seen, error, [state.name for state in states])


async def asynchronous(job: Job) -> Result:
    """The asynchronous client."""
    states: list[ConnectionState] = []
    seen: list[Any] = []
    error = None
    async with AsyncClient(job.url, backoff=_backoff()) as client:
        session = client.session(job.session)
        if job.do == "stream":
            reading = session.stream("Hi", on_state=states.append)
        else:
            reading = session.follow(
                after=job.after, from_now=job.from_now, transport=job.transport, on_state=states.append
            )
        try:
            async with aclosing(reading) as events:
                async for event in events:
                    seen.append(json.loads(event.text))
                    if event.type == job.abort_at:
                        await session.abort()
                    if len(seen) == job.stop_after or event.type == job.stop_at:
                        break
        except ClientError as raised:
            error = raised.code
    return Result(seen, error, [state.name for state in states])


@asynccontextmanager
async def typescript(directory: Path) -> AsyncIterator[Run]:
    """The TypeScript client, in a process of its own that does one job after the other, or several at once."""
    process = await asyncio.create_subprocess_exec(
        node(),
        "--experimental-websocket",  # Node has it without from version 22 on
        "--no-warnings",
        Path(__file__).with_name("driver.mjs"),
        built(directory),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE,
    )
    waiting: dict[int, asyncio.Future[Any]] = {}
    listening = asyncio.create_task(_listen(process, waiting), name="results of node")
    numbers = itertools.count(1)

    async def run(job: Job) -> Result:
        assert process.stdin is not None
        number = next(numbers)
        waiting[number] = asyncio.get_running_loop().create_future()
        words = asdict(job) | {
            "id": number,
            "backoff": {"baseMs": BASE_MS, "longestMs": LONGEST_MS, "tries": TRIES},
            "from": "now" if job.from_now else "start",
            "abortAt": job.abort_at,
            "stopAt": job.stop_at,
            "stopAfter": job.stop_after,
        }
        said = {name: value for name, value in words.items() if value is not None}
        process.stdin.write(json.dumps(said).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            result = await waiting[number]
        assert result["state"] == "closed"
        return Result([json.loads(text) for text in result["events"]], result["error"], result["states"])

    try:
        yield run
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.kill()
        await process.wait()
        await listening


async def _listen(process: asyncio.subprocess.Process, waiting: dict[int, "asyncio.Future[Any]"]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        result = json.loads(line)
        waiting.pop(result["id"]).set_result(result)
    for future in waiting.values():
        if not future.done():
            future.set_exception(RuntimeError("node has ended"))
