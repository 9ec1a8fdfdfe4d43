"""The events' JSON Schema, and how streams are described in the OpenAPI document."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from app.dialects.tarko.messages import EventEnvelope
from app.events.vocabulary import SHAPES

STREAM_EXAMPLE = (
    "id: evt_agpzhxv4lz5czmzoyw3zw2h5ge_2\n"
    'data: {"id":"evt_agpzhxv4lz5czmzoyw3zw2h5ge_2","type":"user_message","timestamp":1622548800000,'
    '"sessionId":"sess_agpzhxv4lz5czmzoyw3zw2h5ge","data":{"content":"Hello","role":"user"},'
    '"metadata":{"source":"user","version":"1.0"}}\n\n'
)

STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; the data of each is an event envelope as JSON.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                # OpenAPI 3.2 calls it `itemSchema`; most tools read 3.1, in which it would make the document invalid.
                "x-itemSchema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "event": {"type": "string"},
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": "#/components/schemas/EventEnvelope"},
                        },
                    },
                },
                "example": STREAM_EXAMPLE,
            }
        },
    }
}


@cache
def event_schema() -> dict[str, Any]:
    """A schema that every event of the log matches: the known types with their data, others with any."""
    definitions: dict[str, Any] = {}
    variants = []
    for event_type, shape in SHAPES.items():
        data = TypeAdapter(shape).json_schema(ref_template="#/$defs/{model}")
        definitions |= data.pop("$defs", {})
        definitions[shape.__name__] = data
        variants.append(_variant({"const": event_type}, {"$ref": f"#/$defs/{shape.__name__}"}))
    variants.append(_variant({"type": "string", "not": {"enum": list(SHAPES)}}, {}))
    envelope = EventEnvelope.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event",
        "description": "An event of a session's log.",
        "type": "object",
        "required": envelope["required"],
        "properties": envelope["properties"],
        "oneOf": variants,
        "$defs": definitions,
    }


def _variant(event_type: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"type": event_type, "data": data}}
