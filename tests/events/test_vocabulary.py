"""The vocabulary: which names an event may have, and shapes that can be checked and published."""

import pytest
from pydantic import TypeAdapter

from app.events.vocabulary import MAX_TYPE_LENGTH, RESERVED, SHAPES, is_event_type


@pytest.mark.parametrize(
    "text", ["a", "user_feedback", "agent.x", "mit Leerzeichen", "größe 😀", "x" * MAX_TYPE_LENGTH]
)
def test_a_type_is_short_printable_text(text: str) -> None:
    assert is_event_type(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n",
        "a\nb",
        "\r",
        "\x00",
        "\x7f",
        "\x85",
        "\u2028",
        "\u2029",
        "\ud800",
        "x" * (MAX_TYPE_LENGTH + 1),
    ],
)
def test_a_type_cannot_end_a_line_or_hide(text: str) -> None:
    assert not is_event_type(text)


def test_our_own_types_are_event_types_and_reserved() -> None:
    assert set(SHAPES) < RESERVED
    assert all(is_event_type(each) for each in RESERVED)


@pytest.mark.parametrize("event_type", SHAPES)
def test_each_shape_has_a_schema(event_type: str) -> None:
    schema = TypeAdapter(SHAPES[event_type]).json_schema()
    assert schema["type"] == "object"
    assert schema["required"]
