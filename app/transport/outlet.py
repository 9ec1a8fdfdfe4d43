"""Carries a cursor's pages to one connection.

When the log moves, the outlet sends at once, inside the flush that made the events visible: that is a third of the
work of waking a task for each reader. A `send` that would block is left to a task of the outlet's own, which also reads
what lies behind the window; until it has caught up, moves of the log are only noticed by it. So a slow reader holds
nothing but its place, and holds nobody up.

Deliberate oddity: a `send` coroutine is begun by hand and, only if it has to wait, finished in a task (`_finish`). It
needs a `send` that does not care which task begins it; that of uvicorn does not.
"""

import asyncio
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, TypeAlias

from app.errors import StorageUnavailable
from app.log.session_log import Page, SessionLog
from app.transport.cursor import Cursor

Message: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Spell: TypeAlias = Callable[[list[Page]], Iterable[Message]]

STORE_PAUSE = 0.5


class ReaderTooSlow(Exception):
    """The connection took no bytes for too long."""


class Outlet:
    """One reader on one connection. `closed` has the reason why it ended, None for its natural end.

    `spell` turns pages into ASGI messages. `sent` is the last place that the connection has taken: the cursor may be
    ahead of it, by pages that a slow connection still refuses. Times are seconds.
    """

    __slots__ = (
        "_begun",
        "_log",
        "_send",
        "_send_timeout",
        "_spell",
        "_spoken",
        "_worker",
        "closed",
        "cursor",
        "last_sent",
        "sent",
    )

    def __init__(
        self, log: SessionLog, cursor: Cursor, send: Send, spell: Spell, *, send_timeout: float
    ) -> None:
        self.cursor = cursor
        self.closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.last_sent = time.monotonic()
        self.sent = cursor.place
        self._log = log
        self._send = send
        self._spell = spell
        self._send_timeout = send_timeout
        self._worker: asyncio.Task[None] | None = None
        self._begun: tuple[Coroutine[Any, Any, None], Any] | None = None
        self._spoken: list[Callable[[int], Message]] = []

    def open(self, first: Callable[[int], Message] | None = None) -> None:
        """Begin to read; `first` makes what is said before the first event, given the place where it begins."""
        self._log.watch(self.moved)
        try:
            is_sent = first is None or self._send_now([first(self.cursor.place)])
        except Exception as error:  # noqa: BLE001 - the connection was lost meanwhile: this reader's failure alone
            self.close(error)
            return
        if is_sent:
            self.moved()

    def close(self, reason: BaseException | None = None) -> None:
        """Stop reading. Safe to call twice."""
        self._log.unwatch(self.moved)
        if self._worker is not None:
            self._worker.cancel()
        if not self.closed.done():
            self.closed.set_result(reason)

    def moved(self) -> None:
        """Send what there is, without waiting."""
        if self._worker is not None or self.closed.done():
            return
        try:
            while pages := self.cursor.ready():
                if not self._send_now(self._spell(pages)):
                    return
                self.sent = self.cursor.place
            if pages is None:
                self._work([])
            elif (not self._spoken or self._send_now(self._to_say())) and self.cursor.is_over:
                self.close()
        except Exception as error:  # noqa: BLE001 - fan-out boundary: one reader's failure is its own
            self.close(error)

    def say(self, make: Callable[[int], Message]) -> None:
        """Send a message that is no event, after all events that were taken; `make` is given their last place."""
        self._spoken.append(make)
        self.moved()

    def finish(self) -> None:
        """Read nothing more; close when everything that was taken and said is sent."""
        self.cursor.is_over = True
        self.moved()

    def ping(self, message: Message) -> None:
        """Send a message that may be left out: a reader that is busy or slow needs none."""
        if self._worker is None:
            self.say(lambda _: message)

    def _send_now(self, messages: Iterable[Message]) -> bool:
        """Send in this very call; False when a send has to wait, and the rest is left to the worker."""
        rest = iter(messages)
        for message in rest:
            self.last_sent = time.monotonic()
            sending = self._send(message)
            coroutine = sending if type(sending) is types.CoroutineType else _as_coroutine(sending)
            try:
                pending = coroutine.send(None)
            except StopIteration:
                continue
            self._begun = (coroutine, pending)
            self._work(rest)
            return False
        return True

    def _work(self, rest: Iterable[Message]) -> None:
        self._worker = asyncio.create_task(self._catch_up(rest), name=f"reader of {self._log.session_id}")

    async def _catch_up(self, rest: Iterable[Message]) -> None:
        try:
            if self._begun is not None:
                coroutine, pending = self._begun
                self._begun = None
                await self._bounded(_finish(coroutine, pending))
            await self._send_all(rest)
            self.sent = self.cursor.place
            while (pages := await self._next()) is not None or self._spoken:
                await self._send_all(self._spell(pages or []))
                self.sent = self.cursor.place
                await self._send_all(self._to_say())
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - fan-out boundary: one reader's failure is its own
            self._worker = None
            self.close(error)
            return
        # No await since there was nothing more to send: the next move finds no worker and sends by itself.
        self._worker = None
        if self.cursor.is_over:
            self.close()

    def _to_say(self) -> list[Message]:
        spoken, self._spoken = self._spoken, []
        return [make(self.cursor.place) for make in spoken]

    async def _next(self) -> list[Page] | None:
        pages = self.cursor.ready()
        while pages is None:
            try:
                pages = await self.cursor.fetch()
            except StorageUnavailable:
                await asyncio.sleep(STORE_PAUSE)
        return pages or None

    async def _send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            await self._bounded(self._send(message))
            self.last_sent = time.monotonic()
            await asyncio.sleep(0)

    async def _bounded(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._send_timeout):
                await sending
        except TimeoutError:
            raise ReaderTooSlow from None


async def _as_coroutine(sending: Awaitable[None]) -> None:
    await sending


@types.coroutine
def _finish(coroutine: Coroutine[Any, Any, None], pending: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that was begun by hand and waits for `pending`."""
    while True:
        thrown: BaseException | None = None
        came = None
        try:
            came = yield pending
        except BaseException as error:  # noqa: BLE001 - whatever comes belongs to the coroutine
            thrown = error
        try:
            pending = coroutine.send(came) if thrown is None else coroutine.throw(thrown)
        except StopIteration:
            return
