"""Notices that a client has hung up."""

from starlette.types import Receive


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client is gone. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
