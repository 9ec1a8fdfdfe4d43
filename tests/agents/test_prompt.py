"""From a query's content to a prompt."""

from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.agents.prompt import prompt_of
from app.errors import BadRequest

PNG = "data:image/png;base64,aGk="


def test_text_is_the_prompt() -> None:
    assert prompt_of("hi\n") == {"text": "hi\n"}
    assert prompt_of("") == {"text": ""}


def test_text_parts_are_lines_and_data_urls_are_images() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "text", "text": "b", "more": 1},
        {"type": "image_url", "image_url": "data:image/svg+xml;base64,"},
    ]
    assert prompt_of(parts) == {
        "text": "a\nb",
        "images": [{"mimeType": "image/png", "data": "aGk="}, {"mimeType": "image/svg+xml", "data": ""}],
    }


def test_no_parts_are_an_empty_prompt() -> None:
    assert prompt_of([]) == {"text": ""}


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"type": "text"},
        {"type": "text", "text": 1},
        {"type": "image"},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,aGk="}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,a Gk="}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}},
        {"type": "image_url", "image_url": {"url": "data:;base64,aGk="}},
    ],
    ids=str,
)
def test_a_part_of_another_form_is_refused_and_named(part: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        prompt_of([{"type": "text", "text": "a"}, part])
    assert refused.value.code == "bad_query"
    assert "part 1" in str(refused.value)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["type", "text", "image_url"]), st.text() | st.just("image_url"))
    )
)
def test_any_parts_are_a_prompt_or_a_refusal(parts: list[dict[str, Any]]) -> None:
    with suppress(BadRequest):
        assert isinstance(prompt_of(parts)["text"], str)
