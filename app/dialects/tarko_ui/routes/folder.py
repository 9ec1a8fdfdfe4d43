"""Files under one root, to be looked at and never changed.

Promise: nothing outside of the root is ever opened. A path is walked from the root's own descriptor one name at a time,
and no symbolic link is followed, so there is no moment between a check and its use. Only folders and regular files
exist here: links, pipes, sockets and devices do not, whatever they lead to. Whatever can't be had is not found, in the
same words.

Every answer is bounded: a file's size, a folder's entries, and what a search looks at, in entries, depth and time. All
of it blocks; callers use threads.
"""

import heapq
import os
import stat
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from app.errors import ConfigurationError, NotFound, TooLarge

MAX_FILE = 2**20
MAX_ENTRIES = 1_000
MAX_FOUND = 20
MAX_LOOKED_AT = 20_000
MAX_DEPTH = 16
MAX_PATH = 4_096
SEARCH_TIME = 1.5

Kind: TypeAlias = Literal["file", "directory"]
Steps: TypeAlias = tuple[str, ...]

_SKIPPED = frozenset({"node_modules", "__pycache__"})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking, because opening a pipe waits for its writer: it may have taken a file's place.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """The files under `root`."""

    def __init__(self, root: Path) -> None:
        """Raises `ConfigurationError` when there is no such folder."""
        if not root.is_dir():
            raise ConfigurationError(f"The workspace {str(root)!r} is not a folder.")
        self._root = root.resolve()

    @property
    def name(self) -> str:
        """The folder's own name. Where it lies is nobody's business."""
        return self._root.name or "workspace"

    def kind(self, path: str) -> Kind | None:
        """What lies there; None for nothing that exists here."""
        with suppress(NotFound), self._at(steps_of(path)) as (_, _, kind, _):
            return kind
        return None

    def look(self, path: str) -> dict[str, Any]:
        """A file with its content, or a folder with its entries. Raises `NotFound`, `TooLarge`."""
        steps = steps_of(path)
        with self._at(steps) as (folder, name, kind, size):
            found = {"path": "/".join(steps), "name": steps[-1] if steps else self.name, "type": kind}
            if kind == "directory":
                return found | self._entries(folder, name, steps)
            if size > MAX_FILE:
                raise TooLarge(f"A file may have {MAX_FILE} bytes, not {size}.", code="file_too_large")
            return found | _content(folder, name)

    def search(self, words: str, kind: Literal["file", "directory", "all"]) -> list[dict[str, Any]]:
        """Up to 20 entries whose path has these letters, the closest first."""
        wanted = words.casefold()
        found = [
            (_distance(steps, wanted), steps, entry)
            for steps, entry in self._walk(with_hidden=wanted.startswith("."))
            if kind in ("all", entry) and wanted in "/".join(steps).casefold()
        ]
        closest = heapq.nsmallest(MAX_FOUND, found)
        return [_item(steps, entry) for _, steps, entry in closest]

    def _walk(self, *, with_hidden: bool) -> Iterator[tuple[Steps, Kind]]:
        """The nearest entries first, as many as may be looked at."""
        deadline = time.monotonic() + SEARCH_TIME
        left = MAX_LOOKED_AT
        folders: deque[Steps] = deque([()])
        while folders and left > 0 and time.monotonic() < deadline:
            parent = folders.popleft()
            for name, kind, _ in self._listed(parent, left):
                left -= 1
                if name in _SKIPPED or (name.startswith(".") and not with_hidden):
                    continue
                steps = (*parent, name)
                if kind == "directory" and len(steps) < MAX_DEPTH:
                    folders.append(steps)
                yield steps, kind

    def _listed(self, steps: Steps, limit: int) -> list[tuple[str, Kind, int]]:
        with suppress(NotFound), self._at(steps) as (folder, name, _, _):
            return _names(folder, name, limit)
        return []  # it went away, or is not ours to read

    def _entries(self, folder: int, name: str, steps: Steps) -> dict[str, Any]:
        listed = _names(folder, name, MAX_ENTRIES + 1)
        entries = [
            _item((*steps, each), kind) | ({"size": size} if kind == "file" else {})
            for each, kind, size in listed[:MAX_ENTRIES]
        ]
        return {"entries": entries, "truncated": len(listed) > MAX_ENTRIES}

    @contextmanager
    def _at(self, steps: Steps) -> Iterator[tuple[int, str, Kind, int]]:
        """The descriptor of the folder where it lies, its name there, what it is, and its size in bytes."""
        *parents, last = steps or (".",)
        try:
            folder = os.open(self._root, _FOLDER)
            try:
                for parent in parents:
                    inner = os.open(parent, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                    os.close(folder)
                    folder = inner
                kind, size = _kind_of(os.stat(last, dir_fd=folder, follow_symlinks=False))
                yield folder, last, kind, size
            finally:
                os.close(folder)
        except (OSError, UnicodeError) as error:
            raise _not_found() from error


def steps_of(path: str) -> Steps:
    """The names on the way from the root. Raises `NotFound` for a path that may lead out of it."""
    if path.startswith("/") or "\0" in path or len(path) > MAX_PATH:
        raise _not_found()
    steps = tuple(step for step in path.split("/") if step not in ("", "."))
    if ".." in steps:
        raise _not_found()
    return steps


def _not_found() -> NotFound:
    return NotFound("There is no such file or folder in the workspace.", code="file_not_found")


def _kind_of(found: os.stat_result) -> tuple[Kind, int]:
    if stat.S_ISDIR(found.st_mode):
        return "directory", 0
    if stat.S_ISREG(found.st_mode):
        return "file", found.st_size
    raise _not_found()


def _names(folder: int, name: str, limit: int) -> list[tuple[str, Kind, int]]:
    inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        with os.scandir(inner) as entries:
            return sorted(_described(islice(entries, limit)))
    finally:
        os.close(inner)


def _described(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[str, Kind, int]]:
    for entry in entries:
        # What has no name in Unicode, is neither file nor folder, or went away.
        with suppress(OSError, UnicodeError, NotFound):
            entry.name.encode()
            yield (entry.name, *_kind_of(entry.stat(follow_symlinks=False)))


def _content(folder: int, name: str) -> dict[str, Any]:
    with os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb") as file:
        _kind_of(os.fstat(file.fileno()))
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise TooLarge(f"A file may have {MAX_FILE} bytes.", code="file_too_large")
    try:
        return {"size": len(content), "encoding": "utf-8", "content": content.decode()}
    except UnicodeDecodeError:
        return {"size": len(content), "encoding": "base64", "content": b64encode(content).decode()}


def _item(steps: Steps, kind: Kind) -> dict[str, Any]:
    path = "/".join(steps)
    return {"name": steps[-1], "path": path, "relativePath": path, "type": kind}


def _distance(steps: Steps, wanted: str) -> tuple[int, int]:
    """A name that begins so is closest, then one that has it, then a path that has it; the nearer the better."""
    name = steps[-1].casefold()
    return (0 if name.startswith(wanted) else 1 if wanted in name else 2), len(steps)
