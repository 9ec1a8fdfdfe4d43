"""The drill's way to servers: one HTTP client for everybody, and the addresses that may answer."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

CONNECT_TIMEOUT = 2.0
ANSWER_TIMEOUT = 60.0


@dataclass(slots=True)
class Web:
    """The servers' addresses and a client for them. A stream that is silent for `silence` seconds counts as dead.

    The client keeps no idle connections: one to a server that was killed meanwhile would cost a query its answer.
    """

    bases: list[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    silence: float = 5.0
    client: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.AsyncClient(
            headers=dict(self.headers),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            timeout=httpx.Timeout(ANSWER_TIMEOUT, connect=CONNECT_TIMEOUT),
            trust_env=False,
            verify=ssl.create_default_context() if self.bases[0].startswith("https:") else False,
        )

    @property
    def stream_timeout(self) -> httpx.Timeout:
        return httpx.Timeout(self.silence, connect=CONNECT_TIMEOUT)
