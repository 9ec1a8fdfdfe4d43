"""An agent's card, for callers of both versions. Pure. What it claims, this server does.

Source: A2A specification 1.0.1, 4.4 and 8; 0.3.0, 5.5.
"""

from hashlib import sha256
from typing import Any

from app import __version__
from app.dialects.a2a.spelling import json_of

PATH = "/.well-known/agent-card.json"
CACHE_CONTROL = "public, max-age=60"
INPUT_MODES = ["text/plain", "image/png", "image/jpeg", "image/gif", "image/webp"]
OUTPUT_MODES = ["text/plain", "application/json"]


def card(name: str, description: str, url: str, *, asks_for_tokens: bool) -> bytes:
    """The card of the agent that is served at `url`, as JSON."""
    told: dict[str, Any] = {
        "name": name,
        "description": description,
        "version": __version__,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": INPUT_MODES,
        "defaultOutputModes": OUTPUT_MODES,
        "skills": [{"id": "chat", "name": name, "description": description, "tags": ["chat"]}],
        # What 0.3 calls the same.
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    }
    if asks_for_tokens:
        scheme = {"scheme": "bearer", "description": "A token of this server."}
        told |= {
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": scheme, "type": "http", **scheme}},
            "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
            "security": [{"bearer": []}],
        }
    return json_of(told)


def etag(body: bytes) -> str:
    """The card's entity tag."""
    return f'"{sha256(body).hexdigest()[:32]}"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Whether an `If-None-Match` header names the tag. Source: RFC 9110, 13.1.2."""
    named = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return "*" in named or tag in named
