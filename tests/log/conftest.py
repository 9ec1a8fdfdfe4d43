"""A log over a memory store that can lag and fail, with its group commit running."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from app.log import group_commit, session_log
from app.log.group_commit import GroupCommit
from app.log.logs import Logs
from app.log.store import MemoryTurn
from tests.log.storing import LaggingStore


@dataclass
class Rig:
    """The parts of a log, and a session `s` with the running turn `t`."""

    store: LaggingStore
    logs: Logs
    commit: GroupCommit


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(group_commit, "RETRY_PAUSE", 0)
    monkeypatch.setattr(session_log, "CATCH_UP_PAUSE", 0)
    store = LaggingStore()
    for session in ("s", "s2"):
        store.open_session(session)
    store.turns["t"] = MemoryTurn("s")
    logs = Logs(store)
    commit = GroupCommit(store, logs)
    commit.start()
    yield Rig(store, logs, commit)
    await commit.stop()
