"""The one encoding: strict, lossless, and safe in a line."""

import dataclasses
import datetime
import enum
import json
import math
import uuid
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.events.canonical import MAX_DEPTH, NotJson, decode, encode, encode_text

TEXT = st.text() | st.text(st.characters(exclude_categories=()) | st.characters(categories=["Cs"]))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(2**62, 2**80)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def meant(value: Any) -> Any:
    """The value with pairs of surrogates as the characters they mean, which is what any JSON reader makes of them."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [meant(item) for item in value]
    if isinstance(value, dict):
        return {meant(key): meant(item) for key, item in value.items()}
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    encoded = encode(value)
    assert decode(encoded) == json.loads(encoded) == meant(value)
    assert repr(decode(encoded)) == repr(meant(value)), "the types are the same, too"


@given(JSON)
def test_what_is_encoded_lies_in_one_line_of_utf8(value: Any) -> None:
    text = encode(value).decode()
    assert text.splitlines() == [text]
    assert not {"\n", "\r", "\x00", "\u2028", "\u2029", "\x85"} & set(text)


@given(TEXT)
def test_a_text_is_encoded_alike_by_itself(text: str) -> None:
    assert encode_text(text) == encode(text)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("\x00", b'"\\u0000"'),
        ("\ud800", b'"\\ud800"'),
        ("\\\udfff", b'"\\\\\\udfff"'),
        ("a\u2028b\u2029c\x85d", b'"a\\u2028b\\u2029c\\u0085d"'),
        ("\u2028\ud800", b'"\\u2028\\ud800"'),
        ("é😀", '"é😀"'.encode()),
        ("\x7f", b'"\x7f"'),
        ((1, (2,)), b"[1,[2]]"),
        (10**40, b"1" + b"0" * 40),
        (-(2**63) - 1, b"-9223372036854775809"),
        (1e308, b"1e+308"),
        (-0.0, b"-0.0"),
        ({"b": 1, "a": None}, b'{"b":1,"a":null}'),
        ([], b"[]"),
        (True, b"true"),
        ("null", b'"null"'),
    ],
)
def test_odd_values_are_spelled_so(value: Any, encoded: bytes) -> None:
    assert encode(value) == encoded


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int = 1


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [1, {"x": [-math.inf]}],
        {1: "a"},
        {None: 1},
        {"a": {("b",): 1}},
        [Name("\ud800"), {2: 3}],
        b"bytes",
        {"set"},
        object(),
        Color.RED,
        uuid.uuid4(),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        Point(),
        nested(MAX_DEPTH + 1),
        nested(5000),
        CYCLE,
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    for wrapped in (value, [None, value]):
        with pytest.raises(NotJson):
            encode(wrapped)


def test_subclasses_of_the_plain_types_are_taken_for_them() -> None:
    assert encode([Name("a"), Level.HIGH, {Name("k"): 1.5}]) == b'["a",3,{"k":1.5}]'


def test_nesting_has_a_limit() -> None:
    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1,]", "{'a':1}", "NaN", "[Infinity]", "-Infinity", "1e999", "-1e999", "01", '"\x01"', "nul",
        "[1] 2", "\ufeff1", "1" * 5000, "[" * 100_000, b"\xff", b'"\xed\xa0\x80"', b'{"a":1',
    ],
    ids=lambda text: str(text)[:20].encode("unicode_escape").decode(),
)  # fmt: skip
def test_what_is_no_json_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(NotJson):
        decode(text)


@given(st.text() | st.binary())
def test_any_text_is_json_or_refused(text: str | bytes) -> None:
    try:
        value = decode(text)
    except NotJson:
        return
    assert decode(encode(value)) == value
