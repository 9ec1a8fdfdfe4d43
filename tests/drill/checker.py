"""Finds what must never be: compares the agents' journal, the readers' records and the log, offline.

I1 lost: an event that a reader saw, or that an agent of a completed turn said, is not in the log; or a reader missed one.
I2 doubled: an event twice in the log or before a reader. I3 order: places or words out of order. I4 ending: a turn
without exactly one ending, or with an event after it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.drill.reader import Record


def check(
    log: list[bytes], records: Iterable[Record], journal: Mapping[str, list[str]]
) -> Iterator[tuple[str, str]]:
    """Each violation in one session: the invariant and what was found. `log` is the whole log, as stored."""
    events = [json.loads(line) for line in log]
    places = [int(event["id"].rsplit("_", 1)[1]) for event in events]
    if places != list(range(1, len(places) + 1)):
        yield "I3 order", f"the log's places are {places[:5]}…{places[-5:]}"
    stored = [
        (event["id"], hashlib.sha256(line).hexdigest()) for event, line in zip(events, log, strict=True)
    ]
    for record in records:
        yield from _check_reader(record, stored)
    for turn_id in dict.fromkeys(_turns(events)):
        yield from _check_turn(turn_id, events, journal.get(turn_id, []))


def read_journal(text: str) -> dict[str, list[str]]:
    """What each turn's agent said, in order."""
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        turn_id, word = line.split(" ")
        said.setdefault(turn_id, []).append(word)
    return said


def _check_reader(record: Record, stored: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    doubled = [event_id for (event_id, _), times in Counter(record.seen).items() if times > 1]
    if doubled:
        yield "I2 doubled", f"a reader saw {doubled[:3]} twice"
    unknown = [event_id for event_id, _ in set(record.seen) - set(stored)]
    if unknown:
        yield "I1 lost", f"a reader saw {unknown[:3]}, which the log does not hold so"
    if not doubled and not unknown and record.seen != stored[: len(record.seen)]:
        yield "I1 lost", f"a reader's record of {len(record.seen)} events is no beginning of the log"


def _check_turn(turn_id: str, events: list[dict[str, Any]], said: list[str]) -> Iterator[tuple[str, str]]:
    ends = [index for index, event in enumerate(events) if _ends(event, turn_id)]
    if len(ends) != 1 or ends[0] != len(events) - 1:
        yield "I4 ending", f"{turn_id} has its endings at {ends} of {len(events)} events"
        return
    words = [event["data"]["delta"].strip() for event in events if event["type"] == "assistant_message_delta"]
    spoken = [word for word in said if word != "end"]
    if words != spoken[: len(words)]:
        yield "I3 order", f"{turn_id} said {spoken[:5]}…, the log has {words[:5]}…"
    text = "".join(e["data"]["content"] for e in events if e["type"] == "assistant_message")
    if text.split() != words:
        yield "I1 lost", f"{turn_id}'s closing message does not repeat its deltas"
    if events[-1]["data"]["status"] == "completed" and words != spoken:
        yield "I1 lost", f"{turn_id} completed with {len(words)} of {len(spoken)} words"


def _turns(events: list[dict[str, Any]]) -> Iterator[str]:
    return (event["data"]["turnId"] for event in events if event["type"] == "agent_run_start")


def _ends(event: dict[str, Any], turn_id: str) -> bool:
    return bool(event["type"] == "agent_run_end" and event["data"]["turnId"] == turn_id)
