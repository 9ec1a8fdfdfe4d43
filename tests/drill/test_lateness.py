"""What the drill calls late, told by figures of the test's own."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.drill.asking import Told
from app.drill.checker import TurnInLog
from app.drill.faults import replicas
from app.drill.findings import Findings
from app.drill.scene import Scene


@pytest.mark.parametrize(("seconds", "is_late"), [(9.9, False), (10.1, True)])
def test_an_orphan_ends_within_ten_seconds(seconds: float, is_late: bool) -> None:
    findings = Findings("F11", "a replica lost")
    scene: Any = SimpleNamespace(orphaned_at=5_000, _findings=findings)
    turn = TurnInLog("turn_a", status="interrupted", ended_at=5_000 + round(seconds * 1000))
    Scene._time_orphan(scene, turn)
    assert findings.figures.slowest_orphan == seconds
    assert [violation.invariant for violation in findings.violations] == ["I4"] * is_late


@pytest.mark.parametrize(("seconds", "is_late"), [(0.9, False), (1.1, True)])
async def test_an_abort_reaches_another_replica_within_a_second(seconds: float, is_late: bool) -> None:
    asked: list[tuple[str, str]] = []

    class Asker:
        async def abort(self, base: str, session_id: str) -> Told:
            asked.append((base, session_id))
            return Told("abort", session_id, 200, {"success": True}, seconds)

    findings = Findings("F11", "a replica lost")
    web = SimpleNamespace(bases=["one", "two"])
    scene: Any = SimpleNamespace(sessions=["a", "b", "c"], asker=Asker(), web=web)
    await replicas._abort_through_the_other(scene, findings)
    assert asked == [("two", "a"), ("one", "b")]
    assert [violation.invariant for violation in findings.violations] == ["I8", "I8"] * is_late
