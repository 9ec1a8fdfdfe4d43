"""The one encoding in which JSON values are stored and sent, and its strict inverse.

A value is encoded once, on the way in, and the same bytes are stored, replayed and streamed. They are UTF-8 JSON on
one line, without characters that some clients take for a line's end, so any text is safe inside an SSE frame.

What becomes of odd values: NUL and lone surrogates are kept (as escapes; two that make a pair come back as the
character they mean), integers of any size that Python prints are kept, tuples become arrays; NaN, infinities, keys that are no strings, nesting deeper than `MAX_DEPTH` and
anything JSON has no word for are refused with `NotJson`.
"""

import json
import math
from typing import Any, NoReturn

import orjson

MAX_DEPTH = 200
MAX_BODY_DEPTH = MAX_DEPTH // 2
"""How deep a request's body may be: what was kept from it must fit into answers that wrap it."""

_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


class NotJson(ValueError):
    """The value or text is not JSON; the message says what was found."""


def encode(value: Any, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Encode any JSON value. What wraps values that were kept may be deeper than they.

    Raises `NotJson` for what JSON can't say.
    """
    try:
        encoded = orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return _encode_with_care(value, max_depth)
    # orjson writes NaN and infinities as null, and a few types that JSON does not have as text.
    if type(value) is not str:
        _check(value, max_depth)
    return encoded if encoded.isascii() else escape_line_ends(encoded)


def encode_text(text: str) -> bytes:
    """Encode a string: the part of `encode` that every delta needs."""
    try:
        encoded = orjson.dumps(text)
    except orjson.JSONEncodeError:
        return _encode_with_care(text)
    return encoded if encoded.isascii() else escape_line_ends(encoded)


def decode(text: str | bytes) -> Any:
    """Read JSON, as strictly as `encode` writes it, but for the depth, of which only what Python bears is refused.

    Raises `NotJson` for malformed text, bad UTF-8, NaN, infinities, overlong numbers and too deep nesting.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError as error:
        raise NotJson(str(error)) from error


def is_deeper(value: Any, depth: int) -> bool:
    """Whether a decoded value is nested deeper than so many levels."""
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(is_deeper(item, depth - 1) for item in items)


def _encode_with_care(value: Any, max_depth: int = MAX_DEPTH) -> bytes:
    """For what orjson refuses: lone surrogates, integers beyond 64 bits, subclasses of the plain types."""
    _check(value, max_depth)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise NotJson(str(error)) from error
    return escape_line_ends(text.encode("utf-8", "backslashreplace"))


def escape_line_ends(encoded: bytes) -> bytes:
    """JSON on one line, also for readers that take U+2028, U+2029 or U+0085 for a line's end."""
    for raw, escape in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escape)
    return encoded


def _check(value: Any, depth: int) -> None:
    if value is None or isinstance(value, str | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{value} is not a JSON number")
        return
    if depth == 0:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJson(f"a key must be a string, not {type(key).__name__}")
            _check(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth - 1)
    else:
        raise NotJson(f"{type(value).__name__} is not a JSON value")


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson(f"{text} is beyond the numbers that can be kept")
    return number
