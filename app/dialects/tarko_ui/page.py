"""The official UI's page: the package's html as it is, with what we tell it put into its head. Decides only; the package is read once.

What we tell it is a block of JSON that no browser runs, and one constant script that hands it to `window`: text from
settings, sessions and agents can neither end its block nor become code. The page may run its own scripts, known by
their hashes, and nothing else: the UI shows html that an agent wrote in frames of this origin, where any script could
use the visitor's login. Nothing is loaded from other hosts, so the page paints at once without internet; the UI's web
fonts and its code editor, which come from such hosts, are replaced by the system's fonts and plain text.

Why not the package's own `get_agent_ui_html`: it writes the configuration without escaping, and ignores the base.
"""

import base64
import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tarko_agent_ui

from app.events.canonical import encode

BASE = r"(?:/[^/]+)*?/ui(?=/|$)"
"""Where the UI finds itself: below `/ui`, under whatever prefix a proxy has put before it. The UI takes an expression."""

_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2f5bd7"/>'
    '<g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"><path d="M8 10h16"/><path d="M8 16h11"/>'
    '<path d="M8 22h6"/></g><circle cx="23" cy="22" r="2.5" fill="#8ff0c8"/></svg>'
)
LOGO = f"data:image/svg+xml,{quote(_LOGO)}"
_HAND_OVER = 'Object.assign(window, JSON.parse(document.getElementById("tarko-server").textContent));'
_POLICY = (
    "default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; frame-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'"
)
_HEAD = re.compile(r"<head[^>]*>")
_SCRIPT = re.compile(r"<script(?:\s[^>]*)?>(.*?)</script>", re.DOTALL)
_FONT = re.compile(r"url\((/[^)]*?)/[^/)]+\.woff2\)")


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is sent: plain, compressed, its entity tag, and its content security policy."""

    plain: bytes
    compressed: bytes
    tag: str
    policy: str


@dataclass(frozen=True, slots=True)
class Assets:
    """What the package has: its html, cut where the head begins; the policy of its scripts; the fonts' path and folder."""

    before: str
    after: str
    policy: str
    font_path: str
    fonts: Path


@cache
def assets() -> Assets:
    """The package's files."""
    static = Path(tarko_agent_ui.get_static_path())
    content = (static / "index.html").read_text(encoding="utf-8")
    head, font = _HEAD.search(content), _FONT.search(content)
    if head is None or font is None:
        raise RuntimeError("the page of tarko-agent-ui has another form than this server knows")
    scripts = [_HAND_OVER, *_SCRIPT.findall(content)]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return Assets(
        before=content[: head.end()],
        after=content[head.end() :],
        policy=_POLICY.format(scripts=hashes),
        font_path=font[1],
        fonts=static / "static" / "font",
    )


def configuration(title: str) -> dict[str, Any]:
    """What the UI is told of itself."""
    return {
        "title": title,
        "welcomTitle": title,  # the UI's own spelling
        "logo": LOGO,
        "base": BASE,
        "welcomePrompts": [],
        "workspace": {"navItems": []},
        "layout": {"enableLayoutSwitchButton": True, "enableSidebar": True, "enableHome": True},
    }


@cache
def ui_page(title: str) -> Page:
    """The page at `/ui/`."""
    known = assets()
    told = {"AGENT_BASE_URL": "", "AGENT_WEB_UI_CONFIG": configuration(title)}
    plain = _with_head(title, told)
    return Page(
        plain=plain,
        compressed=gzip.compress(plain, 6, mtime=0),
        tag=f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"',
        policy=f"{known.policy}; frame-ancestors 'none'",
    )


def replay_page(
    title: str, session: Mapping[str, Any], events: list[bytes], version: Mapping[str, Any]
) -> bytes:
    """A page for a file of its own that plays a session back. `events` are flat ones, as JSON."""
    told = encode(
        {
            "AGENT_REPLAY_MODE": True,
            "AGENT_SESSION_DATA": session,
            "AGENT_VERSION_INFO": version,
            "AGENT_WEB_UI_CONFIG": configuration(title) | {"base": ""},
        }
    )
    stream = b'"AGENT_EVENT_STREAM":[%b]' % b",".join(events)
    policy = html.escape(assets().policy)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return _with_head(title, b"".join((told[:-1], b",", stream, b"}")), meta)


def _with_head(title: str, told: Mapping[str, Any] | bytes, meta: str = "") -> bytes:
    known = assets()
    data = told if isinstance(told, bytes) else encode(told)
    for character, escape in ((b"<", rb"\u003c"), (b">", rb"\u003e"), (b"&", rb"\u0026")):
        data = data.replace(character, escape)
    before = f'{meta}<title>{html.escape(title)}</title><link rel="icon" href="{LOGO}">'
    return b"".join(
        (
            known.before.encode(),
            before.encode(),
            b'<script type="application/json" id="tarko-server">',
            data,
            b"</script><script>",
            _HAND_OVER.encode(),
            b"</script>",
            known.after.encode(),
        )
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
