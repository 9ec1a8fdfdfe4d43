"""The console at `/`: the page that `web/` is built to, as files. Anybody may load it; what it shows, it asks for.

Its policy lets nothing in but its own files: no inline script or style, no other host, and no text becomes html but
through the sanitiser. Files with a hash in their name never change; the others are asked for again at every visit, or a
browser would mix two versions.
"""

import re
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import app

_PACKAGE = Path(app.__file__).parent
BUILT = _PACKAGE / "_web" if (_PACKAGE / "_web").is_dir() else _PACKAGE.parent / "web" / "dist"
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
_NOT_BUILT = (
    "The console is not built here: run `make web`, which needs Node 20.19 or newer. The API is at /docs.\n"
)
_HASHED = re.compile(r"-[\w-]{8}\.\w+$")


def routes(built: Path = BUILT) -> list[BaseRoute]:
    """The page and its files."""

    async def index(_: Any) -> Response:
        page = built / "index.html"
        if not page.is_file():
            return PlainTextResponse(_NOT_BUILT, 503)
        return FileResponse(page, headers=HEADERS)

    return [Route("/", index), Mount("/assets", _Assets(directory=built / "assets", check_dir=False))]


def is_public(path: str) -> bool:
    """Whether the path is a file of the page."""
    return path == "/" or path.startswith("/assets/")


class _Assets(StaticFiles):
    def file_response(self, full_path: Any, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(full_path, *args, **kwargs)
        is_fixed = _HASHED.search(str(full_path)) is not None
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if is_fixed else "no-cache"
        response.headers["x-content-type-options"] = "nosniff"
        return response
