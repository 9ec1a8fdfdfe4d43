"""What is to be checked, in words that can be handed to another process."""

from dataclasses import asdict, dataclass, field
from typing import Any

from app.agents.contract import Prompt
from app.agents.loading import load_agent
from app.conformance.playing import Limits
from app.conformance.remote import Over, served_at
from app.conformance.subject import Conversation, Subject
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Job:
    """`target` is an agent's name as in the settings, or a server's address; `over` says how to speak to that.

    `stall` is after how many seconds without a sign a process counts as blocked. `memory` is how many bytes it may take;
    None: most of what is free.
    """

    target: str
    prompt: str = "Hello"
    failing: str | None = None
    waiting: str | None = None
    conversation: tuple[str, str, str] | None = None
    token: str | None = field(default=None, repr=False)
    over: Over = "tarko"
    limits: Limits = field(default_factory=Limits)
    stall: float = 5.0
    memory: int | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the target is a server."""
        return self.target.startswith(("http://", "https://"))

    def subject(self) -> Subject:
        """The subject that it describes. Raises `AgentLoadError`."""
        if self.is_remote:
            make = served_at(self.target, token=self.token, over=self.over)
        else:
            settings = Settings()
            load_agent(self.target, settings)  # what can't be loaded is told now

            def make() -> Any:
                return load_agent(self.target, settings)

        return Subject(
            make,
            {"text": self.prompt},
            failing=_prompt(self.failing),
            waiting=_prompt(self.waiting),
            conversation=None if self.conversation is None else Conversation(*self.conversation),
            limits=self.limits,
        )

    def as_json(self) -> dict[str, Any]:
        """The job as an object."""
        return asdict(self)

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Job":
        """The job that was told."""
        talk = told["conversation"]
        return cls(
            **told
            | {"limits": Limits(**told["limits"]), "conversation": None if talk is None else tuple(talk)}
        )


def _prompt(text: str | None) -> Prompt | None:
    return None if text is None else {"text": text}
