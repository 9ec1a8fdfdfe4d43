"""The page at `/docs` that shows and tries the OpenAPI document: Swagger UI, its files served from a package.

Nothing is loaded from another host, so it works without internet. Its policy lets in those files and the one script that
the framework writes into the page, by its hash. Addresses are relative: the page may lie behind a proxy's prefix.
"""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import fastapi_offline
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

_FILES = Path(fastapi_offline.__file__).parent / "static"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_NO_ICON = "data:,"
_POLICY = (
    "default-src 'none'; script-src 'self' 'sha256-{script}'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def routes(title: str) -> list[BaseRoute]:
    """The page and its files."""
    page = bytes(
        get_swagger_ui_html(
            openapi_url="openapi.json",
            title=title,
            swagger_js_url="docs/files/swagger-ui-bundle.js",
            swagger_css_url="docs/files/swagger-ui.css",
            swagger_favicon_url=_NO_ICON,
        ).body
    )
    headers = {"content-security-policy": policy_of(page.decode()), "cache-control": "no-cache"}

    async def show(_: Request) -> Response:
        return HTMLResponse(page, headers=headers)

    return [Route("/docs", show), Mount("/docs/files", StaticFiles(directory=_FILES))]


def policy_of(page: str) -> str:
    """What the page may do. Raises RuntimeError when it has not the one script that is known here."""
    scripts = _SCRIPT.findall(page)
    if len(scripts) != 1:
        raise RuntimeError("the framework's page of the API has another form than this server knows")
    return _POLICY.format(script=b64encode(sha256(scripts[0].encode()).digest()).decode())
