"""What `/invoke` is sent. Unknown fields are ignored, images among them; wrong ones are a 400."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _printable(text: str) -> str:
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in text):
        raise ValueError("control characters are not allowed")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class Invoke(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(strict=True)

    session: Name = Field(
        description="The conversation, named by the caller: the same name is the same conversation.",
        examples=["telegram:-1001234567890"],
    )
    text: str = Field(description="What the user says.", examples=["Hello, how can you help?"])
    parentSession: Name | None = Field(
        None, description="The conversation that a new one grew out of; kept, and not acted on."
    )
    branchHints: list[Name] | None = Field(None, max_length=100, description="Not acted on.")
