"""Sees one turn on a remote server through: over connections that break, to its ending, or to its abort.

Promise: whoever stops reading, or can't go on, has the remote turn aborted before this is over, within `abort_patience`.
The query itself is sent in a task of its own that survives a cancel for as long: an abort that overtook it would abort
nothing.

How a lost connection is made good depends on the dialect. `NestedTurn` goes on after its cursor, and asks again with
the same idempotency key while it has none; only a server with cursors allows that. `FlatTurn` looks at the history
until it has the ending, as that dialect has nothing else.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from app.agents.adapters.tarko.flat import FlatFold
from app.agents.adapters.tarko.nested import NestedFold
from app.agents.adapters.tarko.remote import (
    ConnectionLost,
    Frames,
    NoAnswer,
    NotTarko,
    Refused,
    Remote,
    Silence,
)
from app.agents.adapters.tarko.told import BadRemoteEvent
from app.agents.contract import AgentEvent

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
STEADY = 1.0
BUSY_TRIES = 5
LOOK_INTERVAL = 0.3
IDLE_LOOKS = 3

Loss = ConnectionLost | Refused


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long it is tried, in seconds: to reach the server again, and to have a turn aborted."""

    losses: float = 30.0
    abort: float = 4.0


class Comeback:
    """When to try again: after a pause that doubles, with jitter, until `patience` seconds after the first loss."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failures = 0
        self._since: float | None = None

    def went_on(self) -> None:
        """Something came: the next loss is a new one."""
        self._failures = 0
        self._since = None

    async def wait(self, loss: Loss) -> None:
        """Wait before the next try. Raises the loss when it is not worth one any more."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        pause = min(FIRST_PAUSE * 2 ** min(self._failures, 16), LONGEST_PAUSE) * random.uniform(0.5, 1)  # noqa: S311
        pause = max(pause, getattr(loss, "retry_after", None) or 0.0)
        if now + pause - self._since > self._patience:
            raise loss
        self._failures += 1
        await asyncio.sleep(pause)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a turn is asked: where, what, and the request's headers."""

    session_id: str
    content: str | Sequence[Mapping[str, Any]]
    headers: Mapping[str, str]


class _Asking:
    """The remote query on its way, and its abort."""

    def __init__(self, remote: Remote, asked: Asked, patience: Patience) -> None:
        self._remote = remote
        self._asked = asked
        self._patience = patience
        self._opening: asyncio.Task[Frames] | None = None
        self.may_run = False

    async def frames(self) -> Frames:
        """Ask, and abort first what still runs in the session: it can only be left over from a turn that is over."""
        pauses = Comeback(self._patience.losses)
        for _ in range(BUSY_TRIES - 1):
            try:
                return await self._open()
            except Refused as refused:
                if refused.status != 409:
                    raise
                busy = refused
            await self.abort(None)
            await pauses.wait(busy)
        return await self._open()

    async def _open(self) -> Frames:
        asked = self._asked
        may_have_run, self.may_run = self.may_run, True
        self._opening = opening = asyncio.create_task(
            self._remote.query(asked.session_id, asked.content, asked.headers), name="remote query"
        )
        try:
            frames = await asyncio.shield(opening)
        except asyncio.CancelledError:
            raise  # `stop` waits for it
        except (NoAnswer, NotTarko, Refused):
            self.may_run = may_have_run
            self._opening = None
            raise
        except BaseException:
            self._opening = None
            raise
        self._opening = None
        return frames

    async def abort(self, turn_id: str | None) -> bool:
        """Abort what runs in the remote session, or this turn only; whether something was aborted."""
        body = {"sessionId": self._asked.session_id} | ({} if turn_id is None else {"turnId": turn_id})
        return (await self._remote.post("sessions/abort", body)).get("success") is True

    async def stop(self, turn_id: str | None) -> None:
        """Have the turn aborted, unless it never began; bounded, also when the caller is being cancelled."""
        if not self.may_run:
            return
        # A task of its own: the caller's may be in the middle of a cancel.
        stopping = asyncio.create_task(self._stop(turn_id), name="remote abort")
        try:
            await asyncio.wait({stopping}, timeout=self._patience.abort)
        finally:
            stopping.cancel()

    async def _stop(self, turn_id: str | None) -> None:
        with contextlib.suppress(ConnectionLost, Refused, NotTarko):
            if self._opening is not None:
                await (await self._opening).aclose()
            await self.abort(turn_id)


class NestedTurn:
    """A turn in the documented dialect. `has_cursors`: the server tells cursors and honours idempotency keys."""

    def __init__(self, remote: Remote, asked: Asked, patience: Patience, *, has_cursors: bool) -> None:
        self._remote = remote
        self._asked = asked
        self._patience = patience
        self._has_cursors = has_cursors
        self._asking = _Asking(remote, asked, patience)
        self._fold = NestedFold()
        self._cursor = ""

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """What the agent says, the terminal event last. Raises RemoteFailure, BadRemoteEvent."""
        comeback = Comeback(self._patience.losses)
        try:
            while self._fold.ending is None:
                loss: Loss = ConnectionLost("The stream was closed before the turn had ended.")
                began: float | None = None
                try:
                    frames = await self._connected()
                    began = _now()
                    async with aclosing(frames.events()) as events:
                        async for cursor, event in events:
                            comeback.went_on()
                            for said in self._fold.take(event):
                                yield said
                            self._cursor = cursor
                            if self._fold.ending is not None:
                                break
                        else:
                            self._fold.close()
                except (ConnectionLost, Refused) as error:
                    loss = error
                if self._fold.ending is None:
                    if not self._may_come_back(loss):
                        raise loss
                    if was_steady(began, loss):
                        comeback.went_on()
                    await comeback.wait(loss)
            yield self._fold.ending
        finally:
            if self._fold.ending is None:
                await self._asking.stop(self._fold.turn_id)

    async def _connected(self) -> Frames:
        # Before its turn has begun a cursor may lie in front of another turn's end.
        if self._fold.turn_id is not None and self._cursor:
            return await self._remote.follow(self._asked.session_id, self._cursor)
        return await self._asking.frames()

    def _may_come_back(self, loss: Loss) -> bool:
        if isinstance(loss, Refused):
            return loss.is_temporary and (loss.status == 503 or self._has_cursors)
        return self._has_cursors or isinstance(loss, NoAnswer)


class FlatTurn:
    """A turn in the runtime dialect. `is_first`: the session has had none before."""

    def __init__(self, remote: Remote, asked: Asked, patience: Patience, *, is_first: bool) -> None:
        self._remote = remote
        self._asked = asked
        self._patience = patience
        self._is_first = is_first
        self._asking = _Asking(remote, asked, patience)
        self._fold = FlatFold()
        self._last_before: str | None = None

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """What the agent says, the terminal event last. Raises RemoteFailure, BadRemoteEvent."""
        try:
            async with aclosing(self._streamed()) as streamed:
                async for said in streamed:
                    yield said
            if self._fold.ending is None:
                async with aclosing(self._caught_up()) as caught_up:
                    async for said in caught_up:
                        yield said
            assert self._fold.ending is not None  # noqa: S101 - what caught up ends with it or raises
            yield self._fold.ending
        finally:
            if self._fold.ending is None:
                await self._asking.stop(None)

    async def _streamed(self) -> AsyncGenerator[AgentEvent, None]:
        """What came on the stream; without an ending when it broke."""
        frames = await self._begun()
        tries = BUSY_TRIES
        while True:
            with contextlib.suppress(ConnectionLost):
                async with aclosing(frames.events()) as events:
                    async for _, event in events:
                        for said in self._fold.take(event):
                            yield said
                        if self._fold.ending is not None:
                            break
                    else:
                        self._fold.close()
            tries -= 1
            if self._fold.ending is None or self._fold.has_started or not tries:
                return
            # It ended before it began: another turn is in the way, or it can't begin at all.
            if not await self._asking.abort(None):
                return
            self._fold = FlatFold()
            frames = await self._begun()

    async def _begun(self) -> Frames:
        comeback = Comeback(self._patience.losses)
        while True:
            try:
                if not self._is_first:
                    self._last_before = _last_id(await self._history())
                return await self._asking.frames()
            except (NoAnswer, Refused) as loss:
                if isinstance(loss, Refused) and loss.status != 503:
                    raise
                await comeback.wait(loss)

    async def _caught_up(self) -> AsyncGenerator[AgentEvent, None]:
        """What the history tells, looked at until it has the ending."""
        comeback = Comeback(self._patience.losses)
        idle = 0
        while self._fold.ending is None:
            try:
                # In this order: a turn that ends in between has its ending in the history.
                is_running = await self._is_running()
                history = await self._history()
            except (ConnectionLost, Refused) as loss:
                if isinstance(loss, Refused) and not loss.is_temporary:
                    raise
                await comeback.wait(loss)
                continue
            comeback.went_on()
            for said in self._fold.catch_up(self._of_this_turn(history)):
                yield said
            idle = 0 if is_running else idle + 1
            if self._fold.ending is None:
                if idle >= IDLE_LOOKS:
                    raise ConnectionLost(
                        "The connection was lost, and nothing is known of the turn's ending."
                    )
                await asyncio.sleep(LOOK_INTERVAL * random.uniform(0.5, 1))  # noqa: S311

    async def _is_running(self) -> bool:
        status = (await self._remote.get("sessions/status", sessionId=self._asked.session_id)).get("status")
        return isinstance(status, dict) and status.get("isProcessing") is True

    async def _history(self) -> list[Any]:
        events = (await self._remote.get("sessions/events", sessionId=self._asked.session_id)).get("events")
        if not isinstance(events, list):
            raise BadRemoteEvent("the history must have a list of `events`")
        return events

    def _of_this_turn(self, history: list[Any]) -> list[Any]:
        if self._last_before is None:
            return history
        ids = [event.get("id") if isinstance(event, dict) else None for event in history]
        if self._last_before not in ids:
            raise ConnectionLost(
                "The connection was lost, and the history has forgotten where the turn began."
            )
        return history[ids.index(self._last_before) + 1 :]


def was_steady(began: float | None, loss: Loss) -> bool:
    """Whether the connection was one, for a while: a loss after that is a new one."""
    return began is not None and not isinstance(loss, Silence) and _now() - began > STEADY


def _last_id(history: list[Any]) -> str | None:
    last = history[-1] if history else None
    found = last.get("id") if isinstance(last, dict) else None
    return found if isinstance(found, str) else None


def _now() -> float:
    return asyncio.get_running_loop().time()
