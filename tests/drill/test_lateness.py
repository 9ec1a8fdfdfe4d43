"""What the drill calls late, told by figures of the test's own."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.drill import scene as scenes
from app.drill.asking import Told
from app.drill.checker import TurnInLog
from app.drill.faults import replicas, termination
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


@pytest.mark.parametrize(("seconds", "is_late"), [(5.9, False), (6.1, True)])
def test_a_server_stops_within_its_grace_and_two_seconds(seconds: float, is_late: bool) -> None:
    findings = Findings("F10", "a stop")
    termination._judge_stop(findings, 0, seconds)
    assert [violation.invariant for violation in findings.violations] == ["I6"] * is_late


@pytest.mark.parametrize(("refusals", "is_told"), [(0, True), (3, True), (10_000, False)])
async def test_a_history_is_asked_for_until_a_server_tells_it(
    monkeypatch: pytest.MonkeyPatch, refusals: int, is_told: bool
) -> None:
    monkeypatch.setattr(scenes, "AGAIN", 0.0)
    monkeypatch.setattr(scenes, "CATCH_UP", 60.0 if is_told else 0.0)
    asked: list[str] = []

    class Asker:
        async def standing(self, base: str, _: str) -> dict[str, object]:
            asked.append(base)
            if len(asked) <= refusals:
                raise httpx.ConnectTimeout("busy")
            return {"isProcessing": False}

    async def whole_log(_web: Any, _base: str, _session_id: str) -> list[bytes]:
        return [b"an event"]

    monkeypatch.setattr(scenes, "whole_log", whole_log)
    scene: Any = SimpleNamespace(asker=Asker(), web=SimpleNamespace(bases=["one", "two"]))
    found = await Scene._end_of(scene, "sess_a")
    assert (found == ([b"an event"], {"isProcessing": False})) is is_told
    assert asked[:2] == ["one", "two"][: refusals + 1]
