"""The directory of an embedded PostgreSQL: what lies where, who may enter, and the one process that owns it.

    lock            the flock, and the pid that holds it
    postgres/       the cluster, 0700; made under the name initdb-* and renamed when it is whole
    socket/         the socket, 0700, unless its path would be too long: then in a directory of its own below /tmp
    postgres.log    what PostgreSQL logged
    programs-*      a copy of the programs, made only for root

PostgreSQL refuses to run as root. For root it runs as the user `postgres`, else `nobody`; if that user cannot get to
the wanted directory (below `/root`, say), `/var/lib/tarko-server/<hash of the wanted path>` takes its place and a log
line says so. Nobody's directories are opened for it: only those made here get a mode. A cluster once made in the
substitute stays there.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.errors import ConfigurationError
from app.postgres.binaries import Account
from app.postgres.postmaster import SOCKET_NAME, is_private

log = logging.getLogger(__name__)

SUBSTITUTES = Path("/var/lib/tarko-server")
# The system's field for a socket's path has 104 bytes on macOS and 108 on Linux.
LONGEST_SOCKET_PATH = 100
LOG_LIMIT = 4 * 2**20
LOG_TAIL = 15


class DataDirectory:
    """One directory and the account that PostgreSQL has in it. Locked from `make_and_lock` to `unlock`."""

    def __init__(self, path: Path, account: Account) -> None:
        self.path = path
        self.account = account
        self.cluster = path / "postgres"
        self.log_file = path / "postgres.log"
        self._lock: int | None = None

    @classmethod
    def choose(cls, wanted: Path) -> "DataDirectory":
        """The directory to use for the `wanted` one. Nothing is made yet."""
        wanted = wanted.expanduser().resolve()
        substitute = SUBSTITUTES / hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
        account = Account.choose(wanted / "postgres")
        if not account.is_foreign:
            return cls(wanted, account)
        is_reached = account.reaches(wanted)
        if is_reached and not (substitute / "postgres").exists():
            return cls(wanted, account)
        if not is_reached and (wanted / "postgres").exists():
            raise ConfigurationError(
                f"{wanted} holds a database, but uid {account.uid}, as which PostgreSQL runs for root, cannot get "
                f"there. Let it pass (`chmod a+x`) or move the directory and set TARKO_DATA_DIR."
            )
        log.warning("%s is closed to uid %d; the database is kept in %s", wanted, account.uid, substitute)
        return cls(substitute, Account.choose(substitute / "postgres"))

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def make_and_lock(self) -> None:
        """Own the directory. Raises `ConfigurationError` when another process does, or when it can't be written."""
        with self._explained():
            _make_directories(self.path, 0o711 if self.account.is_foreign else 0o700)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            os.close(lock)
            if not isinstance(error, BlockingIOError):
                raise ConfigurationError(f"{self.path} cannot be locked: {error.strerror}.") from error
            raise ConfigurationError(
                f"{self.path} is in use by process {holder or '(unknown)'}. Stop that server, or give this one "
                "a TARKO_DATA_DIR of its own."
            ) from None
        self._lock = lock
        with self._explained():
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def has_cluster(self, major: int) -> bool:
        """Whether a cluster is there. Raises `ConfigurationError` for one that these programs cannot serve."""
        if not self.cluster.exists():
            return False
        if (owner := self.cluster.stat().st_uid) != self.account.uid:
            raise ConfigurationError(
                f"{self.cluster} belongs to uid {owner}, but PostgreSQL would run as uid {self.account.uid}. "
                f"Start the server as the owner, or choose another TARKO_DATA_DIR."
            )
        with self._explained():
            found = (self.cluster / "PG_VERSION").read_text().strip()
        if found != str(major):
            raise ConfigurationError(
                f"{self.cluster} was made by PostgreSQL {found}, but this server runs {major}. Dump it with the old "
                f"version and load it into a new one, or choose another TARKO_DATA_DIR, or serve it with "
                f"PostgreSQL {found} and set TARKO_DATABASE_URL."
            )
        return True

    @contextlib.contextmanager
    def new_cluster(self) -> Iterator[Path]:
        """A directory to make the cluster in; it becomes the cluster when the block ends well, else it goes."""
        self._remove_drafts()
        with self._explained():
            draft = Path(tempfile.mkdtemp(prefix="initdb-", dir=self.path))
            _give(draft, self.account)
        try:
            yield draft
            with self._explained():
                draft.rename(self.cluster)
                _sync(self.path)
        finally:
            self._remove_drafts()

    def make_sockets(self, kept: Path | None) -> Path:
        """The private directory for the socket: the one `kept` from an earlier start, or the fitting one."""
        directory = kept or self._choose_sockets()
        with self._explained(), contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            directory.chmod(0o700)
            _give(directory, self.account)
        if not is_private(directory, self.account.uid):
            raise ConfigurationError(
                f"{directory} should be a directory of uid {self.account.uid} with mode 0700. Remove it and try again."
            )
        return directory

    def discard_sockets(self, directory: Path) -> None:
        """Remove a socket directory that lies elsewhere; only what PostgreSQL puts there is touched."""
        if directory.parent == self.path:
            return
        with contextlib.suppress(OSError):
            for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
                (directory / name).unlink(missing_ok=True)
            directory.rmdir()

    def _choose_sockets(self) -> Path:
        name = f"tarko-{secrets.token_hex(6)}"
        below_temporary = (Path(base) / name for base in (tempfile.gettempdir(), "/tmp"))  # noqa: S108 - private there
        for directory in (self.path / "socket", *below_temporary):
            path = os.fsencode(directory / SOCKET_NAME)
            # PostgreSQL takes a list of directories, and an address a list of hosts: both are split at commas.
            is_speakable = b"," not in path and b'"' not in path
            is_open = not self.account.is_foreign or self.account.reaches(directory)
            if len(path) <= LONGEST_SOCKET_PATH and is_speakable and is_open:
                return directory
        raise ConfigurationError(
            "no directory is fit for PostgreSQL's socket; set TMPDIR to one with a short path."
        )

    def _remove_drafts(self) -> None:
        for draft in self.path.glob("initdb-*"):
            shutil.rmtree(draft, ignore_errors=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"The database cannot be kept in {self.path}: {error.strerror} ({error.filename}). "
                "Set TARKO_DATA_DIR to a directory that this user can write."
            ) from error


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The file PostgreSQL logs to, and where in it this start begins."""

    path: Path
    start: int

    @classmethod
    def begin(cls, path: Path) -> "ServerLog":
        """Continue the file, or begin a new one and keep the old one beside it when it has grown big."""
        size = path.stat().st_size if path.exists() else 0
        if size > LOG_LIMIT:
            path.replace(path.with_name(f"{path.name}.1"))
            size = 0
        return cls(path, size)

    def open(self) -> IO[bytes]:
        return os.fdopen(
            os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "ab"
        )

    def tail(self) -> str:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return "\n".join(file.read().decode(errors="replace").splitlines()[-LOG_TAIL:])


def _make_directories(path: Path, mode: int) -> None:
    """Make `path` and its missing parents; the umask has no say in their mode."""
    for directory in (*reversed(path.parents), path):
        if not directory.exists():
            directory.mkdir(mode=mode, exist_ok=True)
            directory.chmod(mode)


def _give(path: Path, account: Account) -> None:
    if account.is_foreign:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
