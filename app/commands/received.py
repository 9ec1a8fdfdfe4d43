"""An event as a client receives it: the text that came, and what it says.

Promise: `text` is what the server sent, unchanged, so what is passed on is the same to the byte. Anything may be
missing or odd but the JSON object itself: a reader of a log doesn't choose what is in it.
"""

import json
from dataclasses import dataclass
from typing import Any

from app.commands.failures import NotTarko


@dataclass(frozen=True, slots=True)
class Received:
    """One event. `data` is any JSON."""

    text: str
    id: str
    type: str
    timestamp: int | float | None
    data: Any

    @classmethod
    def read(cls, text: str) -> "Received":
        """Read an envelope. Raises NotTarko when it is none."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise NotTarko(f"The server sent an event that isn't JSON: {text[:80]!r}.") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
            raise NotTarko(f"The server sent an event without a type: {text[:80]!r}.")
        timestamp = fields.get("timestamp")
        return cls(
            text=text,
            id=str(fields.get("id", "")),
            type=fields["type"],
            timestamp=timestamp if isinstance(timestamp, int | float) else None,
            data=fields.get("data"),
        )

    def get(self, name: str, default: Any = "") -> Any:
        """A field of the data, or `default` where there is none."""
        return self.data.get(name, default) if isinstance(self.data, dict) else default

    def text_of(self, name: str) -> str:
        """A field of the data as text; what is no text is shown as JSON."""
        value = self.get(name)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
