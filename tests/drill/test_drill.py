"""Five rounds of the drill, and the checker against faults that it must find."""

import hashlib
import json

import pytest

from tests.drill.checker import check
from tests.drill.reader import Record
from tests.drill.rounds import drill


async def test_kill_dash_nine_at_random_instants_breaks_no_promise(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    findings = await drill(tmp_path_factory.mktemp("d"), rounds=5, seed=20261130)
    assert findings.violations == []
    assert findings.rounds == 5
    assert findings.turns["interrupted"] > 0
    assert findings.resumed > 0


def _log(*types_and_words: tuple[str, str]) -> list[bytes]:
    lines = []
    for place, (event_type, word) in enumerate(types_and_words, 1):
        data: dict[str, str] = {"turnId": "turn_1"}
        if event_type == "agent_run_end":
            data["status"] = "completed"
        elif event_type == "assistant_message":
            data = {"content": word}
        elif event_type == "assistant_message_delta":
            data = {"delta": word}
        lines.append(json.dumps({"id": f"evt_a_{place}", "type": event_type, "data": data}).encode())
    return lines


SOUND = _log(
    ("agent_run_start", ""),
    ("assistant_message_delta", "0 "),
    ("assistant_message_delta", "1 "),
    ("assistant_message", "0 1 "),
    ("agent_run_end", ""),
)
JOURNAL = {"turn_1": ["0", "1", "end"]}


def _seen(log: list[bytes], *places: int) -> Record:
    return Record("s", [(f"evt_a_{p}", hashlib.sha256(log[p - 1]).hexdigest()) for p in places])


def test_the_checker_passes_a_sound_log() -> None:
    assert list(check(SOUND, [_seen(SOUND, 1, 2, 3, 4, 5), _seen(SOUND, 1, 2)], JOURNAL)) == []


@pytest.mark.parametrize(
    ("log", "places", "said", "invariant"),
    [
        pytest.param(SOUND, (1, 2, 2, 3), ["0", "1", "end"], "I2 doubled", id="a reader saw one twice"),
        pytest.param(SOUND, (1, 3), ["0", "1", "end"], "I1 lost", id="a reader missed one"),
        pytest.param(SOUND, (2, 1), ["0", "1", "end"], "I1 lost", id="a reader saw them in another order"),
        pytest.param(SOUND, (1,), ["0", "1", "2", "end"], "I1 lost", id="a word is missing in the log"),
        pytest.param(SOUND, (1,), ["1", "0", "end"], "I3 order", id="the words are in another order"),
        pytest.param(SOUND[:-1], (1,), ["0", "1"], "I4 ending", id="no ending"),
        pytest.param([*SOUND, SOUND[1]], (1,), ["0", "1", "end"], "I3 order", id="a place twice"),
    ],
)
def test_the_checker_finds(
    log: list[bytes], places: tuple[int, ...], said: list[str], invariant: str
) -> None:
    found = list(check(log, [_seen(log, *places)], {"turn_1": said}))
    assert invariant in {which for which, _ in found}
