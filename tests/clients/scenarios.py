"""The scenarios of `clients/conformance.json`, read: what a client is asked, what goes wrong meanwhile, what must come."""

import json
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

FILE = Path(__file__).parents[2] / "clients" / "conformance.json"
SESSION = "sess_abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Refusal:
    """An answer with this status; without a code it is not the protocol's own. `retry_after` is seconds."""

    status: int
    code: str | None = None
    retry_after: int | None = None


@dataclass(frozen=True)
class Fault:
    """What becomes of one connection."""

    cut_after: int | None = None
    pieces: int | None = None
    wait_ms: int = 0
    refuse: Refusal | None = None
    drop: bool = False
    farewell: int | None = None
    twice: bool = False
    overlap: int = 0
    retry_ms: int = 1

    @classmethod
    def all_of(cls, said: dict[str, Any]) -> list[Self]:
        """The faults of an entry: one, or those of a sweep."""
        if "sweep" in said:
            sweep = said["sweep"]
            return [cls(cut_after=sweep["from"] + n * sweep["step"]) for n in range(sweep["count"])]
        values = {_snake(name): value for name, value in said.items()}
        if "refuse" in values:
            values["refuse"] = Refusal(**{_snake(name): value for name, value in values["refuse"].items()})
        assert values.keys() <= {each.name for each in fields(cls)}, said
        return [cls(**values)]


@dataclass(frozen=True)
class Scenario:
    """One scenario. `seen` is how many events come before the `error`; `pauses_ms` the least time between the first
    connection that fails and the next.
    """

    name: str
    log: str
    faults: list[Fault]
    do: Literal["follow", "stream"] = "follow"
    after: int | None = None
    held: int = 0
    error: str | None = None
    seen: int | None = None
    pauses_ms: int = 0
    events: list[str] = field(default_factory=list)

    @property
    def expected(self) -> list[Any]:
        """The events that the client must give, as values."""
        texts = self.events[(self.after or 0) :] if self.do == "follow" else last_turn(self.events)
        return [json.loads(text) for text in texts[: self.seen]]


def last_turn(events: list[str]) -> list[str]:
    """The events of a log's last turn."""
    first = max(n for n, text in enumerate(events) if '"type":"user_message"' in text)
    return events[first:-1]


@cache
def scenarios() -> list[Scenario]:
    """All of the file."""
    read = json.loads(FILE.read_text())
    return [_scenario(each, read["logs"]) for each in read["scenarios"]]


def _scenario(said: dict[str, Any], logs: dict[str, dict[str, Any]]) -> Scenario:
    events = log(**logs[said["log"]])
    values = {_snake(name): value for name, value in said.items() if name != "connections"}
    if values.get("after") == "last but one":
        values["after"] = len(events) - 1
    faults = [fault for each in said["connections"] for fault in Fault.all_of(each)]
    return Scenario(**values, faults=faults, events=events)


def log(turns: int, deltas: int, texts: list[str] | None = None, bytes: int = 0) -> list[str]:
    """A session's log, each event as the text that is sent; from `session_start` to `session_end`."""
    texts = (texts or []) + (["x" * bytes] if bytes else [])
    told: list[tuple[str, Any]] = [
        ("session_start", {"sessionId": SESSION, "agentName": "a", "timestamp": 1})
    ]
    for turn in range(turns):
        turn_id = f"turn_{turn}"
        told.append(("user_message", {"content": f"query {turn}", "role": "user"}))
        told.append(("agent_run_start", {"turnId": turn_id, "agentName": "a"}))
        said = [*(f"word {n} " for n in range(deltas)), *texts]
        told += [("assistant_message_delta", {"delta": text, "messageId": turn_id}) for text in said]
        closing = {
            "content": "".join(said),
            "role": "assistant",
            "finishReason": "stop",
            "messageId": turn_id,
        }
        told.append(("assistant_message", closing))
        told.append(("agent_run_end", {"turnId": turn_id, "status": "completed", "elapsedMs": 5}))
    told.append(("session_end", {"sessionId": SESSION, "duration": 9, "messageCount": 2 * turns}))
    return [spelled(place, kind, data) for place, (kind, data) in enumerate(told, 1)]


def spelled(place: int | str, kind: str, data: Any) -> str:
    """An envelope on one line. Text goes as it is, lone surrogates aside, which UTF-8 has no word for."""
    envelope = {
        "id": f"evt_{SESSION[5:]}_{place}",
        "type": kind,
        "timestamp": 1_700_000_000_000,
        "sessionId": SESSION,
        "data": data,
        "metadata": {"source": "agent", "version": "1.0"},
    }
    text = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
