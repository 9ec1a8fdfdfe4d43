"""A client of Tarko event servers: every event once, in order, whatever becomes of the connection.

`Client` and `AsyncClient` have the same surface. What they decide (where to resume, what came twice, how long to wait)
lies in modules without I/O, so both decide alike.
"""

from tarko_client.aio import AsyncClient, AsyncSession
from tarko_client.answer import Answer
from tarko_client.client import Client, Session
from tarko_client.errors import ClientError, ConnectionLost, NoServer, NotTarko, Refused, TurnFailed
from tarko_client.event import Event
from tarko_client.link import Backoff, ConnectionState
from tarko_client.pages import EventPage, SessionPage

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncSession",
    "Backoff",
    "Client",
    "ClientError",
    "ConnectionLost",
    "ConnectionState",
    "Event",
    "EventPage",
    "NoServer",
    "NotTarko",
    "Refused",
    "Session",
    "SessionPage",
    "TurnFailed",
]

__version__ = "0.1.0"
