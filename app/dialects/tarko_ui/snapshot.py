"""A session's history as the dialect tells it: whole messages, and of the running turn what it has said so far. No I/O."""

from collections.abc import Iterable, Sequence

from app.dialects.tarko_ui.flat import spell
from app.events.canonical import decode, encode
from app.events.envelope import Envelope

_CLOSED_BY = {
    "assistant_message_delta": "assistant_message",
    "assistant_thinking_delta": "assistant_thinking_message",
}


class Snapshot:
    """Takes a session's events, oldest first: the running turn with its deltas, the others without.

    Deltas are joined to one streaming event for each message that is still open at the end; those of a message that was
    closed are left out.
    """

    def __init__(self) -> None:
        self._open: dict[str, list[Envelope]] = {}

    def take(self, events: Iterable[Envelope]) -> list[bytes]:
        """The flat events that are known to be whole."""
        spelled: list[bytes] = []
        for event in events:
            closing = _CLOSED_BY.get(event.type)
            if closing is not None:
                self._open.setdefault(closing, []).append(event)
            else:
                self._open.pop(event.type, None)
                spelled += spell(event)
        return spelled

    def rest(self) -> list[bytes]:
        """What is still being said."""
        return [flat for deltas in self._open.values() for flat in spell(_joined(deltas))]


def _joined(deltas: Sequence[Envelope]) -> Envelope:
    said = [decode(delta.data) for delta in deltas]
    text = "".join(piece["delta"] for piece in said)
    return deltas[-1]._replace(data=encode({"delta": text, "messageId": said[-1]["messageId"]}))
