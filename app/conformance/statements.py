"""The statements that are checked, each with the clause of the specification that it comes from.

A: of agents. C: of callers that want a result. H: of hosts, callers that serve any agent; these are the promises of this
server's driver and go beyond the specification. M: of middleware. Source: Agent Handler protocol specification v0.1.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """One testable sentence. `clause` is where it is said; "kit" is what this kit asks beyond the specification."""

    id: str
    text: str
    clause: str

    def __str__(self) -> str:
        return self.id


AGENT = (
    Statement("A0", "invoke returns an async iterable", "§2"),
    Statement("A1", "a stream that is read to its end has exactly one terminal event, the last", "§6 MUST 1"),
    Statement("A1b", "after the terminal event the iteration ends, with nothing more", "§6 MUST 1"),
    Statement(
        "A2", "every failure is a `failed` event; neither the call nor the iteration raises", "§6 MUST 2"
    ),
    Statement("A3", "stopped while it waits, it ends its work, and no event comes any more", "§6 MUST 3"),
    Statement(
        "A3b",
        "stopped between two events, it releases what it holds, and closes without an error",
        "§6 MUST 3",
    ),
    Statement("A3c", "stopped before the first event was asked for, it has started no work", "§6 MUST 3"),
    Statement("A3d", "stopped while it prepares its first event, it ends its work", "§6 MUST 3"),
    Statement("A3e", "a turn that has ended leaves no task, thread or descriptor behind", "kit"),
    Statement("A4", "every event survives strict JSON unchanged", "§5"),
    Statement("A4b", "the known events have their fields", "§5"),
    Statement("A5", "the text is in text deltas only; `completed` does not repeat it", "§5"),
    Statement("A6", "unknown keys of scope and prompt, and images, do no harm", "§3, §4, §8"),
    Statement("A7", "two turns at once in different sessions do not mix", "§3"),
    Statement(
        "A8", "a session that is busy is refused first thing and retryably, if it is refused", "§8, policy"
    ),
    Statement("A9", "an instance can go on with a session that another one began", "§6 MUST 6, optional"),
    Statement("A10", "it does not keep the event loop for itself", "kit"),
)

CALLER = (
    Statement("C1", "events of unknown types are passed over, and the order is kept", "§6 MUST 4"),
    Statement(
        "C2", "it reads until the terminal event and no further; a stream without one is an error", "§7"
    ),
    Statement("C3", "leaving early closes the agent", "§6 MUST 3"),
    Statement("C4", "thinking is not part of the answer, and a tool that never ends does no harm", "§5, §6"),
    Statement("C5", "it goes by `code`, never by `details`", "§5"),
    Statement("C6", "a turn that may have done something is not sent again by itself", "§6, §9"),
)

HOST = (
    Statement("H1", "whatever the agent does, there is exactly one outcome, and no exception", "kit"),
    Statement("H2", "the first terminal event wins, and nothing is passed on after it", "§6 MUST 1"),
    Statement("H3", "one task makes the call, every step and the close", "kit"),
    Statement("H4", "an agent that ignores being stopped holds nobody up", "kit"),
    Statement("H5", "once it was told to stop, nothing is passed on", "§6 MUST 3"),
    Statement("H6", "an agent's code after its last event runs where the agent expects it", "kit"),
    Statement("H7", "an agent that never waits does not stop everything else", "kit"),
)

MIDDLEWARE = (
    Statement("M1", "unknown events pass unchanged and in order", "§6 MUST 5"),
    Statement("M2", "exactly one terminal event comes out, whatever the inner agent does", "§6 MUST 1, 2"),
    Statement(
        "M3", "a stop reaches the inner agent, which has cleaned up when the close returns", "§6 MUST 3"
    ),
    Statement(
        "M4", "a failure of its own is a `failed` event, and the inner agent is closed", "§6 MUST 2, §8"
    ),
    Statement("M5", "nothing is held back: an event is out before the next one is made", "§1"),
    Statement("M6", "scope and prompt pass inward with all their keys", "§8"),
)


def named(statements: tuple[Statement, ...], statement_id: str) -> Statement:
    """The statement of that id. Raises KeyError."""
    for statement in statements:
        if statement.id == statement_id:
            return statement
    raise KeyError(statement_id)
