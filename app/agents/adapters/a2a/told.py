"""What was said of an artifact, so that nothing of it is said twice and nothing is left out. No I/O.

An artifact comes in pieces, and again as a whole: after a lost connection, and at its task's end. What earlier turns
said of it is known by lengths and digests only.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from app.agents.adapters.a2a.wire import Content, Other


class Told:
    """One artifact. `pieces` are the length and the digest of what each earlier turn said, `skipped` its other parts."""

    __slots__ = ("_others", "_pieces", "_skipped", "_texts")

    def __init__(self, pieces: Sequence[tuple[int, str]] = (), skipped: int = 0) -> None:
        self._pieces = list(pieces)
        self._skipped = skipped
        self._texts: list[str] = []
        self._others: list[Other] = []

    def add(self, content: Content) -> Content:
        """Note more of it; it is what there is to say."""
        self._texts.append(content.text)
        self._others += content.others
        return content

    def replace(self, whole: Content) -> Content:
        """Note that it is this now; what there is to say. New text can't unsay the old: it is on a line of its own."""
        said = "".join(self._texts)
        text = self._rest_of_text(whole.text)
        if text is None:
            self._pieces, self._texts = [], [whole.text]
            is_shorter = said.startswith(whole.text)
            text = "" if is_shorter else f"\n{whole.text}" if said else whole.text
        return Content(text, self._rest_of_others(whole.others))

    def catch_up(self, whole: Content) -> Content:
        """What of a snapshot was not said yet. One that lags behind has nothing new."""
        said = sum(length for length, _ in self._pieces) + sum(map(len, self._texts))
        if len(whole.text) < said:
            return Content("", self._rest_of_others(whole.others) if whole.others else ())
        return self.replace(whole)

    def mark(self) -> Mapping[str, Any]:
        """Enough to know it again in a later turn."""
        said = "".join(self._texts)
        pieces = [*self._pieces, (len(said), _digest(said))] if said else self._pieces
        return {"texts": [list(piece) for piece in pieces], "others": self._skipped + len(self._others)}

    def _rest_of_text(self, whole: str) -> str | None:
        """What is new in it; None if it is another text than was said."""
        at, said = 0, "".join(self._texts)
        for length, digest in self._pieces:
            if _digest(whole[at : at + length]) != digest:
                return None
            at += length
        if not whole.startswith(said, at):
            return None
        self._texts = [whole[at:]]
        return whole[at + len(said) :]

    def _rest_of_others(self, whole: tuple[Other, ...]) -> tuple[Other, ...]:
        known = self._skipped + len(self._others)
        if whole[self._skipped : known] == tuple(self._others):
            self._others = list(whole[self._skipped :])
            return whole[known:]
        self._skipped, self._others = 0, list(whole)
        return whole


def recalled(mark: Mapping[str, Any]) -> Told:
    """What `mark` made."""
    return Told([(length, digest) for length, digest in mark["texts"]], mark["others"])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
