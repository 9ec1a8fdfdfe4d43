"""Where pieces of text go: to a terminal in colours, or plainly to stdout and stderr.

Plainly, stdout gets the answers and nothing else, so that it can be piped on; tools, failures and notes go to stderr,
and reasoning is left out. Every write is flushed: what was said is seen at once.
"""

from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from app.commands.rendering import Kind, Piece

_STYLES: dict[Kind, Style] = {
    "answer": Style(),
    "plain": Style(),
    "thinking": Style(dim=True, italic=True),
    "tool": Style(color="cyan"),
    "error": Style(color="red"),
    "note": Style(dim=True),
}


UNBOUND_WIDTH = 1000


class OurConsole(Console):
    """rich's console, which lets a broken pipe be raised: `app.cli` ends quietly then."""

    def on_broken_pipe(self) -> NoReturn:
        # rich calls this while it handles the error.
        raise BrokenPipeError


class Screen:
    """Shows pieces. With `is_plain` there are no styles, and stdout is for the answers alone."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self._is_plain = is_plain
        self.out = _console(is_plain=is_plain)
        self.err = _console(is_plain=is_plain, stderr=True)

    def show(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if self._is_plain and piece.kind == "thinking":
                continue
            console = self.err if self._is_plain and piece.kind not in ("answer", "plain") else self.out
            # As a segment, because a console changes the tabs and the width of a text.
            console.print(Segments([Segment(piece.text, _STYLES[piece.kind])]), end="", soft_wrap=True)

    def notice(self, text: str) -> None:
        """A word from us beside the output."""
        self.err.print(Segments([Segment(f"{text}\n", _STYLES["note"])]), end="", soft_wrap=True)


def wide_console() -> Console:
    """A console for tables. Without a terminal there is no width to fit, and a cut id is of no use."""
    console = OurConsole()
    if not console.is_terminal:
        console.width = UNBOUND_WIDTH
    return console


def _console(*, is_plain: bool, stderr: bool = False) -> Console:
    if is_plain:
        return OurConsole(stderr=stderr, color_system=None, force_terminal=False)
    return OurConsole(stderr=stderr)
