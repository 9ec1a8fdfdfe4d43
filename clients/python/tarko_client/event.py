"""An event as a client receives it: the text that came, and what it says.

Promise: `text` is what the server sent, unchanged, so what is passed on is the same to the byte. Anything may be
missing or odd but the JSON object itself: a reader of a log doesn't choose what is in it.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from tarko_client.errors import NotTarko

_PLACE = re.compile(r"(?:^|_)([0-9]+)(?:~[0-9]+)?$")


def place_of(cursor: str) -> int | None:
    """The place that an event id or a cursor names; None when it names none."""
    found = _PLACE.search(cursor)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `timestamp` is epoch milliseconds; `data` is any JSON, for known types as in `tarko_client.shapes`."""

    text: str
    id: str
    type: str
    timestamp: int | float | None
    data: Any
    session_id: str = ""
    metadata: Any = None

    @classmethod
    def read(cls, text: str) -> "Event":
        """Read an envelope. Raises NotTarko when it is none."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NotTarko(f"The server sent an event that isn't JSON: {text[:80]!r}.") from error
        return cls.of(text, fields)

    @classmethod
    def of(cls, text: str, fields: Any) -> "Event":
        """The envelope with this text and these fields. Raises NotTarko when it is none."""
        if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
            raise NotTarko(f"The server sent an event without a type: {text[:80]!r}.")
        timestamp = fields.get("timestamp")
        return cls(
            text=text,
            id=str(fields.get("id") or ""),
            type=fields["type"],
            timestamp=timestamp if isinstance(timestamp, int | float) else None,
            data=fields.get("data"),
            session_id=str(fields.get("sessionId", "")),
            metadata=fields.get("metadata"),
        )

    @property
    def place(self) -> int | None:
        """Its number in the session; None for a foreign server's event."""
        return place_of(self.id)

    @property
    def is_control(self) -> bool:
        """Whether this is an answer of the server that is not in the log, such as `query_queued`."""
        return "~" in self.id or self.id.startswith("ctl_")

    @property
    def is_passing(self) -> bool:
        """Whether the log keeps it for a while only: a delta, which the message that closes it repeats."""
        return self.type.endswith("_delta")

    def get(self, name: str, default: Any = "") -> Any:
        """A field of the data, or `default` where there is none."""
        return self.data.get(name, default) if isinstance(self.data, dict) else default

    def text_of(self, name: str) -> str:
        """A field of the data as text; what is no text is shown as JSON."""
        value = self.get(name)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
