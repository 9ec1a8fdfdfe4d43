"""The tools that run in a turn, and the ids by which the log knows their calls.

An agent's own id is taken as it is, unless the session has used it already: then a number makes it another one.
"""

from collections.abc import Iterable, Iterator


class RunningTool:
    """Its id in the log, the agent's own id, its name, when it began (epoch ms), and the metadata of its events."""

    __slots__ = ("agent_id", "began", "id", "metadata", "name")

    def __init__(self, wire_id: str, agent_id: str, name: str, began: int, metadata: bytes) -> None:
        self.id = wire_id
        self.agent_id = agent_id
        self.name = name
        self.began = began
        self.metadata = metadata


class RunningTools:
    """Those of one turn, in the order in which they began."""

    def __init__(self) -> None:
        self._running: dict[str, RunningTool] = {}
        self._used: set[str] = set()
        self.knows_session = False

    def __iter__(self) -> Iterator[RunningTool]:
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        return len(self._running)

    def know(self, ids: Iterable[str]) -> None:
        """Note which ids the session has used."""
        self._used.update(ids)
        self.knows_session = True

    def unused_id(self, agent_id: str) -> str:
        """The id for a new call, which is used from now on."""
        wire_id, n = agent_id, 1
        while wire_id in self._used:
            n += 1
            wire_id = f"{agent_id}~{n}"
        self._used.add(wire_id)
        return wire_id

    def add(self, tool: RunningTool) -> None:
        """Note that it runs."""
        self._running[tool.id] = tool

    def called(self, agent_id: str) -> RunningTool | None:
        """The one that the agent calls so: the last one, if it used the id again too soon."""
        for tool in reversed(self._running.values()):
            if tool.agent_id == agent_id:
                return tool
        return None

    def remove(self, wire_id: str) -> None:
        """Note that it runs no more."""
        self._running.pop(wire_id, None)
