"""Runs the stages: `python -m bench [--quick] [--only NAME]`. The exit code tells of failures, not of missed goals."""

import argparse
import asyncio
import gc
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from bench import burst, footprint, history, idle, large, live, readers, stopped
from bench.processes import Others
from bench.report import Report
from bench.scene import Scene, scene

STAGES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "burst": burst.measure,
    "live": live.measure,
    "readers": readers.measure,
    "history": history.measure,
    "footprint": footprint.measure,
}
BY_HAND: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "idle": idle.hold,
    "storm": idle.storm,
    "stopped": stopped.measure,
    "large": large.measure,
}
ALL = {**STAGES, **BY_HAND}


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m bench", description="Measure the server.")
    options.add_argument("--quick", action="store_true", help="fewer repetitions, about a minute")
    options.add_argument(
        "--only", action="append", choices=[*STAGES, *BY_HAND], help="this stage; may be repeated"
    )
    chosen = options.parse_args()
    _allow_many_sockets()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    report = Report()
    try:
        with (
            scene(report, is_quick=chosen.quick) as place,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(_run(place, chosen.only or list(STAGES)))
    except KeyboardInterrupt:
        report.say("stopped")
        return 130
    return 0


async def _run(place: Scene, names: list[str]) -> None:
    began = time.monotonic()
    await place.record()
    gc.freeze()
    for name in names:
        others, stage_began = Others(), time.monotonic()
        await ALL[name](place)
        seconds = time.monotonic() - stage_began
        place.report.say(f"  {seconds:.0f} s, in which others used {others.share():.0%} of the processors")
    place.report.goals()
    place.report.say(f"{time.monotonic() - began:.0f} s")


def _allow_many_sockets() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
