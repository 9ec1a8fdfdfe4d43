"""The short drill, whole; and the drill of a deployment, which here is a server of the test's own."""

import asyncio
import os
import re
import shutil
import signal
import sys

import psutil
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.drill import local, scene
from app.drill.failures import DrillFailed
from app.drill.faults import FAULTS, Fault, kill_points, replicas, termination
from app.drill.findings import Findings
from app.drill.local import Drill, Plan
from app.drill.network import why_not
from app.drill.stage import Stage
from app.postgres.embedded import EmbeddedPostgres
from tests.server import PATIENCE, serving

FAR = "F6"
TOKEN = "a-secret-of-the-drill"


@pytest.mark.timeout(240)
async def test_no_fault_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of how soon is not judged here: a machine that has much else to do is late, and no worse for it."""
    monkeypatch.setattr(scene, "ORPHAN_LIMIT", PATIENCE)
    monkeypatch.setattr(replicas, "ABORT_LIMIT", PATIENCE)
    monkeypatch.setattr(termination, "TOO_LATE", PATIENCE)
    drill = Drill(Plan(seed=20261130, is_short=True), print)
    await drill.run()
    found = list(drill.found.values())
    assert [(findings.fault, findings.violations) for findings in found if findings.violations] == []
    assert {findings.fault for findings in found if findings.skipped} == ({FAR} if why_not() else set())
    assert len(found) == len(FAULTS)
    assert sum(findings.figures.turns["interrupted"] for findings in found) > 0
    assert sum(findings.figures.resumed for findings in found) > 0
    lost = next(findings for findings in found if findings.fault == "F11")
    assert lost.figures.slowest_orphan > 0


def run(*words: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["drill", *words])


def test_what_breaks_is_told_and_kept_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lie(_: Stage, findings: Findings) -> None:
        findings.add("I8", "it lied")

    monkeypatch.setattr(local, "FAULTS", [Fault("F5", "a lie", "proxy", lie, 1, 1)])
    done = run("--only", "f5", "--seed", "7")
    assert done.exit_code == 1
    assert "F5 I8 honest: it lied" in done.stdout
    kept = done.stderr.strip().rpartition(" ")[2]
    shutil.rmtree(kept)


def test_what_was_found_is_told_when_the_drill_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two_rounds(_: Stage, findings: Findings) -> None:
        if findings.rounds == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    async def no_server(_: Stage, findings: Findings) -> None:
        if findings.rounds == 2:
            raise DrillFailed("The server did not start.")

    async def no_death(stage: Stage, findings: Findings) -> None:
        if findings.rounds == 2:
            async with stage.scene(findings, asks=False) as scene:
                os.kill(os.getpid(), signal.SIGTERM)
                await kill_points._until_dead(stage, scene, findings, "nowhere")

    cuts = ((two_rounds, "was stopped"), (no_server, "did not start"), (no_death, "was stopped"))
    for round_of_three, why in cuts:
        monkeypatch.setattr(local, "FAULTS", [Fault("F5", "cut short", "proxy", round_of_three, 3, 3)])
        done = run("--only", "f5", "--seed", "7")
        assert done.exit_code == 1
        assert re.search(r"F5 cut short\W+2\W", done.stdout)
        assert why in done.stderr.splitlines()[-1]


def test_a_drill_that_is_told_to_stop_while_it_clears_away_clears_away_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_stage, stop_postgres = Stage.stop, EmbeddedPostgres.stop
    stages: list[Stage] = []
    postmasters: list[int | None] = []

    async def is_told() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)

    async def stops_servers(stage: Stage) -> list[int]:
        stages.append(stage)
        await is_told()
        return await stop_stage(stage)

    async def stops_postgres(postgres: EmbeddedPostgres) -> None:
        postmasters.append(postgres.pid)
        await is_told()
        await stop_postgres(postgres)

    async def nothing(_: Stage, __: Findings) -> None:
        pass

    monkeypatch.setattr(Stage, "stop", stops_servers)
    monkeypatch.setattr(EmbeddedPostgres, "stop", stops_postgres)
    monkeypatch.setattr(local, "FAULTS", [Fault("F5", "in peace", "proxy", nothing, 1, 1)])
    done = run("--only", "f5", "--seed", "7")
    assert done.exit_code == 1
    assert "was stopped" in done.stderr.splitlines()[-1]
    [stage], [postmaster] = stages, postmasters
    assert postmaster
    assert not psutil.pid_exists(postmaster)
    assert not any(replica.is_running for replica in stage.replicas)
    assert not stage.directory.exists()


def test_a_drill_that_is_cut_short_after_a_kill_leaves_no_database_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orphans: list[psutil.Process] = []

    async def kill(stage: Stage, _: Findings) -> None:
        await stage.replicas[0].kill()
        orphans.extend(
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(stage.directory) in word for word in process.info["cmdline"] or ())
        )
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(local, "FAULTS", [Fault("F1", "kill", "embedded", kill, 1, 1)])
    assert run("--only", "f1").exit_code == 1
    assert orphans
    assert psutil.wait_procs(orphans, timeout=PATIENCE)[1] == []


def test_a_fault_that_needs_root_is_left_out_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "why_not", lambda: "network namespaces need root")
    done = run("--only", FAR)
    assert done.exit_code == 0
    assert "F6 WAS NOT DONE: network namespaces need root" in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(("--url", "http://127.0.0.1:9"), "No server answers", id="nobody"),
        pytest.param(
            ("--url", "http://127.0.0.1:9", "--during", "no-such-program x"), "no program", id="no program"
        ),
    ],
)
def test_a_deployment_that_cannot_be_drilled_is_told_in_a_line(words: tuple[str, ...], why: str) -> None:
    done = run(*words)
    assert done.exit_code == 1
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_a_deployment_that_asks_for_a_token_says_so(embedded_database: str) -> None:
    async with serving(embedded_database, tokens=f"alice={TOKEN}") as server:
        done = await asyncio.to_thread(run, "--url", server.url)
        assert "makes no session: 401" in done.stderr


def test_a_fault_that_is_not_there_is_refused() -> None:
    done = run("--only", "F99")
    assert done.exit_code == 2
    assert "there is no F99" in done.stderr


async def test_a_deployment_is_drilled_with_a_fault_of_its_operator(embedded_database: str) -> None:
    async with serving(embedded_database, tokens=f"alice={TOKEN}") as server:
        command = f"{sys.executable} -c 1/0"
        words = (
            "--url",
            server.url,
            "--token",
            TOKEN,
            "--seed",
            "1",
            "--prompt",
            "Hello",
            "--during",
            command,
        )
        done = await asyncio.to_thread(run, *words)
        assert done.exit_code == 0, done.output
        assert done.stdout.count("the command ended with 1") == len(("F6", "F7", "F12"))
        left = await (await server.client(TOKEN)).get("/api/v1/sessions")
        assert left.json()["sessions"] == []
