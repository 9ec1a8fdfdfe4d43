"""Finds what must never be: compares the agents' journal, the readers' records, the answers and the log, offline.

I1 lost: an event that a reader saw, or that an agent said, is not in the log; or a reader missed one. I2 doubled: an
event twice before a reader. I3 order: places or words out of order. I4 ending: a turn without exactly one ending, with
an event outside of it, or with an ending that this fault can't cause. I7 orphan: an agent whose code went on after
its turn was aborted. I8 honest: an answer that the log contradicts. I9 isolated: an event of another session.
I10 clean: an answer that nobody should get.

I5 and I6 are measured by who causes the fault. Pure: evidence in, violations out.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.drill.asking import Told
from app.drill.findings import Violation
from app.drill.journal import Said, hash_of
from app.drill.record import Record, place_of

CHECKED = ("I1", "I2", "I3", "I4", "I8", "I9", "I10")
CLEAN_UP = 2_000
OUTSIDE = ("session_start", "session_end", "user_message", "user_feedback")
PROPER = (0, 200, 404, 409, 429, 502, 503, 504)
ALL_ENDINGS = ("completed", "failed", "aborted", "interrupted")


@dataclass(slots=True)
class Evidence:
    """All that is known of one session.

    `log` is the whole log as stored; None when the session was deleted. `journal` is None when the agent keeps none.
    `endings` are those that the fault may cause; `unstarted` those that it may, if the agent had said nothing yet: who
    asked for the turn was told that the outcome is unknown. `agents_live`: no process died, so every agent had to clean up.
    `standing` is what the server says of the session at the end.
    """

    session_id: str
    log: Sequence[bytes] | None
    records: Sequence[Record] = ()
    journal: Mapping[str, Said] | None = None
    told: Sequence[Told] = ()
    standing: Mapping[str, Any] | None = None
    endings: Collection[str] = ALL_ENDINGS
    unstarted: Collection[str] = ()
    agents_live: bool = False


@dataclass(slots=True)
class TurnInLog:
    """A turn as the log tells it."""

    id: str
    words: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    status: str | None = None
    last_id: str = ""
    ended_at: int = 0
    code: str | None = None


def check(evidence: Evidence) -> Iterator[Violation]:
    """Every violation in one session."""
    session_part = evidence.session_id.removeprefix("sess_")
    for record in evidence.records:
        yield from _check_reader(record, session_part)
    yield from _check_answers(evidence.told)
    if evidence.log is None:
        return
    events = [json.loads(line) for line in evidence.log]
    yield from _check_places(events, session_part)
    stored = [(event["id"], hash_of(line)) for event, line in zip(events, evidence.log, strict=True)]
    for record in evidence.records:
        yield from _compare(record, stored)
    turns: dict[str, TurnInLog] = {}
    yield from _walk(events, turns)
    for turn in turns.values():
        yield from _check_turn(turn, evidence)
    for told in evidence.told:
        yield from _check_promise(told, turns)
    yield from _check_standing(evidence, events)


def turns_of(log: Sequence[bytes]) -> list[TurnInLog]:
    """The turns in a log."""
    turns: dict[str, TurnInLog] = {}
    for _ in _walk([json.loads(line) for line in log], turns):
        pass
    return list(turns.values())


def _check_reader(record: Record, session_part: str) -> Iterator[Violation]:
    doubled = [event_id for event_id, times in Counter(seen.id for seen in record.seen).items() if times > 1]
    if doubled:
        yield Violation("I2", f"a {record.kind} reader saw {doubled[:3]} twice")
    strays = [seen.id for seen in record.seen if not seen.id.startswith(f"evt_{session_part}_")]
    if strays:
        yield Violation("I9", f"a {record.kind} reader of {record.session_id} saw {strays[:3]}")
    places = [place_of(seen.id) for seen in record.seen]
    wrong = next((index for index, place in enumerate(places, 1) if place != index), None)
    if wrong is not None and not doubled and not strays:
        yield Violation(
            "I3",
            f"a {record.kind} reader of {record.session_id} was shown place {places[wrong - 1]} instead of {wrong}",
        )
    for answer in record.trouble[:3]:
        yield Violation("I10", f"a {record.kind} reader of {record.session_id} was answered {answer}")


def _check_answers(told: Sequence[Told]) -> Iterator[Violation]:
    for answer in told:
        if answer.status not in PROPER:
            yield Violation(
                "I10", f"{answer.what} in {answer.session_id}: {answer.status} {str(answer.body)[:300]}"
            )


def _check_places(events: Sequence[Mapping[str, Any]], session_part: str) -> Iterator[Violation]:
    places = [place_of(event["id"]) for event in events]
    if places != list(range(1, len(places) + 1)):
        yield Violation("I3", f"the places of {session_part} are {places[:5]}…{places[-5:]}")
    if any(not event["id"].startswith(f"evt_{session_part}_") for event in events):
        yield Violation("I9", f"the log of {session_part} has another's events")


def _compare(record: Record, stored: Sequence[tuple[str, str]]) -> Iterator[Violation]:
    known = set(stored)
    unknown = [seen.id for seen in record.seen if (seen.id, seen.hash) not in known]
    if unknown:
        yield Violation("I1", f"a {record.kind} reader saw {unknown[:3]}, which the log does not hold so")


def _walk(events: Sequence[Mapping[str, Any]], turns: dict[str, TurnInLog]) -> Iterator[Violation]:
    """Fill `turns`; a session's turns follow each other."""
    open_turn: TurnInLog | None = None
    for event in events:
        data = event["data"]
        match event["type"]:
            case "agent_run_start":
                if open_turn is not None:
                    yield Violation("I4", f"{data['turnId']} starts inside of {open_turn.id}")
                if data["turnId"] in turns:
                    yield Violation("I4", f"{data['turnId']} starts twice")
                open_turn = turns[data["turnId"]] = TurnInLog(data["turnId"])
            case "agent_run_end":
                if open_turn is None or open_turn.id != data["turnId"]:
                    yield Violation("I4", f"{data['turnId']} ends where it does not run")
                else:
                    open_turn.status, open_turn.last_id = data["status"], event["id"]
                    open_turn.ended_at = event["timestamp"]
                open_turn = None
            case kind if open_turn is None:
                if kind not in OUTSIDE:
                    yield Violation("I4", f"{event['id']} ({kind}) lies outside of a turn")
            case kind:
                _add(open_turn, kind, data)
    if open_turn is not None:
        yield Violation("I4", f"{open_turn.id} has no ending")


def _add(turn: TurnInLog, kind: str, data: Mapping[str, Any]) -> None:
    if kind == "assistant_message_delta":
        turn.deltas.append(data["delta"])
        turn.words.append(hash_of(data["delta"].encode()))
    elif kind == "assistant_message":
        turn.messages.append(data["content"])
    elif kind == "error":
        turn.code = data.get("code")


def _check_turn(turn: TurnInLog, evidence: Evidence) -> Iterator[Violation]:
    is_started = bool(turn.words) or evidence.journal is None or turn.id in evidence.journal
    allowed = evidence.endings if is_started else {*evidence.endings, *evidence.unstarted}
    if turn.status is not None and turn.status not in allowed:
        yield Violation(
            "I4",
            f"{turn.id} of {evidence.session_id} ended {turn.status} ({turn.code}), which this fault can't cause",
        )
    if turn.deltas and turn.status is not None and "".join(turn.messages) != "".join(turn.deltas):
        yield Violation("I1", f"{turn.id}: its closing messages do not repeat its deltas")
    if evidence.journal is None:
        return
    said = evidence.journal.get(turn.id, Said())
    if turn.words != said.words[: len(turn.words)]:
        yield Violation(
            "I3", f"{turn.id}: the log does not have the words in the order in which they were said"
        )
    elif turn.status == "completed" and (turn.words != said.words or not said.has_ended):
        yield Violation("I1", f"{turn.id} completed with {len(turn.words)} of {len(said.words)} words")
    if evidence.agents_live and turn.status == "aborted" and turn.id in evidence.journal:
        if said.over_at is None:
            yield Violation("I7", f"{turn.id} was aborted, and its agent never cleaned up")
        elif said.over_at > turn.ended_at + CLEAN_UP:
            yield Violation(
                "I7", f"{turn.id}: its agent ran {said.over_at - turn.ended_at} ms after its abort"
            )


def _check_promise(told: Told, turns: Mapping[str, TurnInLog]) -> Iterator[Violation]:
    if told.turn_id is None or told.ending is None:
        return
    turn = turns.get(told.turn_id)
    if told.ending == "removed":
        if turn is not None:
            yield Violation("I8", f"{told.turn_id} is said to be removed, but it ran")
    elif turn is None:
        yield Violation("I8", f"{told.what} is told of {told.turn_id}, which the log does not have")
    elif turn.status != told.ending:
        yield Violation("I8", f"{told.what} is told that {turn.id} {told.ending}; the log says {turn.status}")
    elif told.body.get("lastEventId", turn.last_id) != turn.last_id:
        yield Violation(
            "I8", f"abort is told {told.body['lastEventId']}, but {turn.id} ends at {turn.last_id}"
        )


def _check_standing(evidence: Evidence, events: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    standing = evidence.standing
    if standing is None or not events:
        return
    if standing["status"]["isProcessing"]:
        yield Violation("I8", f"{evidence.session_id} is said to run a turn, and every turn has ended")
    if standing["lastEventId"] != events[-1]["id"]:
        yield Violation(
            "I8", f"the last event is said to be {standing['lastEventId']}, not {events[-1]['id']}"
        )
