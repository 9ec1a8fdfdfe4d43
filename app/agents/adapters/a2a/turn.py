"""Sees one turn on a remote agent through: over connections that break, to its task's end, its question, or its abort.

Promises: a message is sent again only when it is sure that it was not taken, or the agent is known to take it once.
What is said comes from the stream that the message began, and from snapshots of the task. A subscription only tells when
to look at it: a2a-sdk 1.3 may put a piece both into its first snapshot and behind it. In 0.3 nobody subscribes: a2a-sdk
0.3.26 stores every piece once more for each subscriber, so the task itself would say it twice.
Whoever stops reading, or can't go on, has the remote task canceled before this is over, within `Patience.abort`; the message
itself is sent in a task of its own that survives a cancel for as long, as it tells which task to cancel.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from app.agents.adapters.a2a import wire
from app.agents.adapters.a2a.card import Endpoint
from app.agents.adapters.a2a.failures import (
    INVALID_PARAMS,
    TASK_NOT_FOUND,
    UNSUPPORTED,
    VERSION_NOT_SUPPORTED,
    Busy,
    OutcomeUnknown,
    Refused,
)
from app.agents.adapters.a2a.fold import TaskFold
from app.agents.adapters.a2a.known import NOTHING, Known
from app.agents.adapters.a2a.remote import Remote, Results
from app.agents.adapters.a2a.taken import taken_by_context, taken_by_task
from app.agents.adapters.a2a.watch import Watch
from app.agents.adapters.comeback import Comeback, Patience, now
from app.agents.adapters.remote_failures import BadRemoteEvent, ConnectionLost, NoAnswer, RemoteFailure
from app.agents.contract import AgentEvent, Prompt

BUSY_TRIES = 5
RESUBSCRIBE = 5.0
TAIL = 2.0
QUICK = 30.0

Loss = ConnectionLost | NoAnswer | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """What a turn is asked, after what is known from earlier turns.

    `server` is the fingerprint by which the agent is remembered, `silence` and `deadline` are seconds.
    """

    server: str
    prompt: Prompt
    message_id: str
    known: Known
    headers: Mapping[str, str]
    is_idempotent: bool
    silence: float
    deadline: float


class Turn:
    """One turn, to be read once."""

    def __init__(self, remote: Remote, asked: Asked, patience: Patience) -> None:
        self._remote = remote
        self._asked = asked
        self._patience = patience
        self._fold = TaskFold(asked.known)
        self._comeback = Comeback(patience.losses)
        self._watch = Watch(asked.deadline)
        # What is remembered of a question is outdated as soon as it is answered.
        self._remembered = None if asked.known.question else (asked.known.context_id, asked.known.task_id)
        self._opening: asyncio.Task[tuple[Any, Results]] | None = None
        self._is_taken = False
        self._doubt: Loss | None = None
        self._was_cut = False

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """What the agent says, the terminal event last. Raises RemoteFailure, BadRemoteEvent."""
        try:
            while not self._fold.is_settled:
                loss: Loss | None = None
                try:
                    async with aclosing(self._heard()) as heard:
                        async for said in heard:
                            for event in said:
                                yield event
                except (ConnectionLost, NoAnswer, Refused) as error:
                    if self._is_gone(error):
                        yield NOTHING.event(self._asked.server)
                    loss = error
                if not self._fold.is_settled:
                    await self._pause(loss)
            known = self._fold.known
            if known.question:
                yield known.event(self._asked.server)
            for event in self._fold.close():
                yield event
        finally:
            if not self._fold.is_over:
                await self._stop()

    # ── one connection ───────────────────────────────────────────────────────────────────────────────────────────

    async def _heard(self) -> AsyncGenerator[list[AgentEvent], None]:
        """What one connection tells."""
        if self._doubt is not None:
            await self._resolve(self._doubt)
            self._doubt = None
        if self._is_taken:
            heard = self._followed()
        else:
            first, results = await self._begun()
            self._is_taken = True
            heard = self._streamed(first, results)
        async with aclosing(heard):
            async for said in heard:
                yield said

    async def _streamed(self, first: Any, results: Results) -> AsyncGenerator[list[AgentEvent], None]:
        """What the stream tells that the message began."""
        async with aclosing(results):
            yield self._take(first)
            while not self._fold.is_settled:
                try:
                    result = await results.next(self._asked.silence)
                except Refused as refused:
                    yield await self._look_because(refused)
                    return
                if result is None:
                    self._was_cut = True
                    return
                yield self._take(result)
            yield await self._tail(results)

    async def _followed(self) -> AsyncGenerator[list[AgentEvent], None]:
        """What the task tells, looked at until it has settled."""
        news = asyncio.Event()
        listening = asyncio.create_task(self._listen(news), name="remote subscription")
        try:
            while True:
                began = now()
                yield await self._look()
                if self._fold.is_settled:
                    return
                await self._watch.pause(news, now() - began)
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self, news: asyncio.Event) -> None:
        """Tell that there are news of the task, for as long as the agent lets itself be subscribed to."""
        while True:
            try:
                endpoint = await self._remote.endpoint()
                if not endpoint.streams or endpoint.version != "1.0":
                    return
                await self._subscribe(endpoint, news)
            except Refused as refused:
                if not refused.is_temporary:
                    return
            except (RemoteFailure, BadRemoteEvent):
                pass  # what is wrong shows when the task is looked at
            await asyncio.sleep(RESUBSCRIBE)

    async def _subscribe(self, endpoint: Endpoint, news: asyncio.Event) -> None:
        params = {"id": self._fold.task_id}
        results = await self._remote.open(endpoint, "SubscribeToTask", params, self._asked.headers)
        async with aclosing(results):
            while (result := await results.next(self._asked.silence)) is not None:
                if not isinstance(wire.reply(result), wire.Task):
                    # Also one that says only that the task goes on.
                    self._fold.signs += 1
                news.set()
        news.set()

    def _take(self, result: Any) -> list[AgentEvent]:
        said = self._fold.take(wire.reply(result))
        self._comeback.went_on()
        known = (self._fold.context_id, self._fold.task_id)
        if known != self._remembered and any(known):
            self._remembered = known
            said.insert(0, Known(*known).event(self._asked.server))
        return said

    async def _tail(self, results: Results) -> list[AgentEvent]:
        """What comes behind the status that settled the task, and what was never streamed."""
        said: list[AgentEvent] = []
        with contextlib.suppress(TimeoutError, RemoteFailure, BadRemoteEvent):
            async with asyncio.timeout(TAIL):
                while (result := await results.next(TAIL)) is not None:
                    said += self._take(result)
        if self._fold.may_lack_text(was_cut=self._was_cut):
            with contextlib.suppress(RemoteFailure, BadRemoteEvent):
                said += await self._look()
        return said

    async def _look(self) -> list[AgentEvent]:
        """What the task as a whole says that was not said yet."""
        if not self._fold.task_id:
            raise OutcomeUnknown("The connection was lost, and the agent had not named its task.")
        try:
            said = self._take(await self._call("GetTask", {"id": self._fold.task_id}))
        except Refused as refused:
            if refused.is_not_known:
                raise OutcomeUnknown(
                    "The connection was lost, and the agent tells nothing of its tasks."
                ) from refused
            raise
        self._watch.saw(self._fold.signs)
        return said

    async def _look_because(self, refused: Refused) -> list[AgentEvent]:
        """What the task says after its stream ended with an error: how it failed, if it has."""
        try:
            said = await self._look()
        except (RemoteFailure, BadRemoteEvent):
            raise refused from None
        if not self._fold.is_settled:
            raise refused
        self._fold.blame(str(refused))
        return said

    # ── the message ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _begun(self) -> tuple[Any, Results]:
        """Send the message, in the way that the agent understands; its first result, and the rest."""
        busy = Comeback(self._patience.losses)
        tries = BUSY_TRIES
        while True:
            endpoint = await self._remote.endpoint()
            try:
                begun = await self._send(endpoint)
            except Refused as refused:
                if (other := self._other_way(endpoint, refused)) is not None:
                    self._remote.settle_on(other)
                elif self._fold.task_id and await self._is_answered(refused):
                    self._fold = TaskFold(Known(self._fold.context_id))
                elif refused.is_unsupported and self._asked.known.context_id:
                    tries -= 1
                    if not tries:
                        raise Busy("The remote conversation stays busy.") from refused
                    await self._cancel_leftover()
                    await busy.wait(refused)
                else:
                    if refused.number == VERSION_NOT_SUPPORTED or refused.status == 404:
                        self._remote.forget()
                    raise
            else:
                if endpoint.version is None:
                    self._remote.settle_on(replace(endpoint, version="0.3"))
                return begun

    async def _send(self, endpoint: Endpoint) -> tuple[Any, Results]:
        params = wire.sending(
            endpoint.version or "0.3",
            self._asked.prompt,
            self._asked.message_id,
            context_id=self._fold.context_id,
            task_id=self._fold.task_id,
            waits=endpoint.streams,
        )
        self._opening = opening = asyncio.create_task(self._open(endpoint, params), name="remote message")
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            raise  # `_stop` waits for it
        except BaseException:
            self._opening = None
            raise
        self._opening = None
        return opened

    async def _open(self, endpoint: Endpoint, params: Any) -> tuple[Any, Results]:
        method = "SendStreamingMessage" if endpoint.streams else "SendMessage"
        headers = self._asked.headers
        if endpoint.streams:
            opened = await self._remote.open(endpoint, method, params, headers)
            return await _first_of(opened, self._asked.silence), opened
        return await self._remote.call(endpoint, method, params, headers), Results.none()

    def _other_way(self, endpoint: Endpoint, refused: Refused) -> Endpoint | None:
        """How to ask instead, where the agent did not understand."""
        is_unknown = refused.is_not_known or refused.number == VERSION_NOT_SUPPORTED
        if endpoint.version is None and is_unknown:
            return replace(endpoint, version="1.0")
        if endpoint.streams and (
            refused.is_not_known or (refused.is_unsupported and not self._asked.known.context_id)
        ):
            return replace(endpoint, streams=False)
        return None

    async def _is_answered(self, refused: Refused) -> bool:
        """Whether the task waits for no answer any more, so that what was said begins a new one."""
        if refused.number not in (TASK_NOT_FOUND, UNSUPPORTED, INVALID_PARAMS):
            return False
        try:
            found = wire.reply(await self._call("GetTask", {"id": self._fold.task_id}))
        except Refused as missing:
            return missing.number == TASK_NOT_FOUND
        return isinstance(found, wire.Task) and found.status.state in wire.SETTLED - {"input-required"}

    async def _cancel_leftover(self) -> None:
        """End the task of an earlier turn: one that is over here can only be left over there."""
        known = self._asked.known
        if known.task_id and not known.question:
            with contextlib.suppress(Refused):
                await self._call("CancelTask", {"id": known.task_id})

    # ── what is lost ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _pause(self, loss: Loss | None) -> None:
        """Wait before the next connection. Raises the loss if there is none to come."""
        if loss is None:
            return
        if isinstance(loss, Refused) and not loss.is_temporary:
            raise loss
        is_sure = isinstance(loss, NoAnswer) or (isinstance(loss, Refused) and loss.did_nothing)
        if not self._is_taken and not is_sure:
            self._doubt = loss
        self._was_cut = True
        await self._comeback.wait(loss)

    async def _resolve(self, loss: Loss) -> None:
        """Find out whether a message was taken that got no answer. Raises OutcomeUnknown."""
        if self._asked.is_idempotent:
            return
        endpoint = await self._remote.endpoint()
        fold, message_id = self._fold, self._asked.message_id
        taken_by: str | None = None
        with contextlib.suppress(Refused):
            if fold.task_id:
                taken_by = await taken_by_task(self._call, fold.task_id, message_id)
            elif endpoint.version == "1.0" and fold.context_id:
                taken_by = await taken_by_context(self._call, fold.context_id, message_id)
        if taken_by is None:
            raise OutcomeUnknown(
                f"The connection was lost before the agent said whether it took the message: {loss}"
            ) from loss
        fold.task_id = taken_by or fold.task_id
        self._is_taken = bool(taken_by)

    def _is_gone(self, loss: Loss) -> bool:
        """Whether the agent has forgotten the conversation."""
        return isinstance(loss, Refused) and loss.number == TASK_NOT_FOUND

    # ── the abort ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _stop(self) -> None:
        """Have the task canceled, if there is one; bounded, also when the caller is being cancelled."""
        # A task of its own: the caller's may be in the middle of a cancel.
        stopping = asyncio.create_task(self._cancel(), name="remote cancel")
        try:
            await asyncio.wait({stopping}, timeout=self._patience.abort)
        finally:
            stopping.cancel()

    async def _cancel(self) -> None:
        with contextlib.suppress(RemoteFailure, BadRemoteEvent):
            if self._opening is not None:
                first, results = await self._opening
                await results.aclose()
                self._take(first)
                self._is_taken = True
            if self._is_taken and self._fold.task_id and not self._fold.is_over:
                await self._call("CancelTask", {"id": self._fold.task_id})

    async def _call(self, method: str, params: Any) -> Any:
        endpoint = await self._remote.endpoint()
        return await self._remote.call(endpoint, method, params, self._asked.headers, patience=QUICK)


async def _first_of(results: Results, silence: float) -> Any:
    """The first result; the results are closed if there is none. Raises ConnectionLost."""
    try:
        first = await results.next(silence)
        if first is None:
            raise ConnectionLost("The stream was closed before the agent had said anything.")
    except BaseException:
        await results.aclose()
        raise
    return first
