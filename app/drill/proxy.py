"""A proxy between server and PostgreSQL that loses answers.

It listens on a Unix socket of its own and passes bytes both ways. While it is cutting, a connection is broken now and
then: what the server sent has reached PostgreSQL, but the answer does not come back. Half of the cuts leave PostgreSQL
a moment, so that the commit has mostly happened; the others do not.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from app.postgres.postmaster import PORT, SOCKET_NAME

CHUNK = 65_536
LONGEST_MOMENT = 0.05


class Proxy:
    """The proxy. `cuts` counts the answers that were lost."""

    def __init__(self, real: Path, directory: Path, chance: random.Random) -> None:
        self._real = real
        self._directory = directory
        self._chance = chance
        self._probability = 0.0
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self.cuts = 0

    def address(self, dsn: str) -> str:
        """The address of the same database behind the proxy."""
        return f"{dsn.partition('?')[0]}?host={quote(str(self._directory), safe='/')}&port={PORT}"

    async def start(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self._directory / SOCKET_NAME)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    @contextmanager
    def cutting(self, probability: float) -> Iterator[None]:
        """Lose answers in the block: after each piece that the server sends, with this probability."""
        self._probability = probability
        try:
            yield
        finally:
            self._probability = 0.0

    async def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._links.add(task)
            task.add_done_callback(self._links.discard)
        try:
            server, to_server = await asyncio.open_unix_connection(self._real / SOCKET_NAME)
        except OSError:
            to_client.close()
            return
        back = asyncio.create_task(_pass_on(server, to_client), name="answers of PostgreSQL")
        try:
            await self._pass_until_cut(client, to_server, back)
        finally:
            back.cancel()
            to_client.close()
            to_server.close()

    async def _pass_until_cut(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, back: "asyncio.Task[None]"
    ) -> None:
        with suppress(OSError):
            while not back.done() and (sent := await client.read(CHUNK)):
                is_cut = self._chance.random() < self._probability
                if is_cut:
                    back.cancel()
                    await asyncio.wait([back])
                to_server.write(sent)
                await to_server.drain()
                if is_cut:
                    self.cuts += 1
                    if self._chance.random() < 0.5:
                        await asyncio.sleep(self._chance.uniform(0, LONGEST_MOMENT))
                    return


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while passed := await source.read(CHUNK):
            target.write(passed)
            await target.drain()
    target.close()
