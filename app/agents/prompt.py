"""From what a client sends as a query to an agent's prompt.

A query is text, or a list of content parts in OpenAI's form: `{"type": "text", "text"}` and
`{"type": "image_url", "image_url": {"url": "data:<media type>;base64,<data>"}}`. Text parts are joined by newlines.
"""

import re
from base64 import b64decode
from typing import Any

from app.agents.contract import ImageRef, Prompt
from app.errors import BadRequest

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL | re.ASCII)


def prompt_of(content: str | list[dict[str, Any]]) -> Prompt:
    """The prompt that the content is.

    Raises `BadRequest` (`bad_query`) for parts of another form, images that are no data URL and bad base64.
    """
    if isinstance(content, str):
        return {"text": content}
    texts: list[str] = []
    images: list[ImageRef] = []
    for index, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}} | {
                "type": "image_url",
                "image_url": str(url),
            }:
                images.append(_image(url, index))
            case _:
                raise _bad(f"part {index} must be a text or image_url part")
    prompt: Prompt = {"text": "\n".join(texts)}
    if images:
        prompt["images"] = images
    return prompt


def _image(url: str, index: int) -> ImageRef:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise _bad(f"part {index}: an image must be a data URL with base64; other addresses are not fetched")
    try:
        b64decode(match[2], validate=True)
    except ValueError as error:
        raise _bad(f"part {index}: not base64 ({error})") from error
    return {"mimeType": match[1], "data": match[2]}


def _bad(message: str) -> BadRequest:
    return BadRequest(f"The query can't be read: {message}.", code="bad_query")
