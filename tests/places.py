"""Directories for servers under test: short, since socket paths are, and open to the account a root's database runs as."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def data_directory() -> Iterator[Path]:
    """A directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="tarko-", dir="/tmp", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        yield place
