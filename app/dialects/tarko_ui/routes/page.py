"""The UI's page and its fonts."""

from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from app.dialects.tarko_ui.page import assets, ui_page

PAGES = ("/ui", "/ui/", "/ui/{session_id}")


def router(title: str, *, has_files: bool) -> APIRouter:
    """The page, wherever the UI's own router may be when it is loaded. A visitor without a login is sent to log in."""
    api = APIRouter(include_in_schema=False)

    async def page(request: Request) -> Response:
        if "principal" not in request.scope.get("state", {}):
            target = quote(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
            return Response(
                status_code=303, headers={"location": f"/login?next={target}", "cache-control": "no-store"}
            )
        found = await to_thread.run_sync(lambda: ui_page(title, has_files=has_files))
        headers = {
            "cache-control": "no-cache",
            "content-security-policy": found.policy,
            "etag": found.tag,
            "vary": "Accept-Encoding, Cookie",
        }
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(found.plain, headers=headers, media_type="text/html")
        return Response(
            found.compressed, headers=headers | {"content-encoding": "gzip"}, media_type="text/html"
        )

    for path in PAGES:
        api.add_api_route(path, page, methods=["GET", "HEAD"])
    return api


def fonts() -> BaseRoute:
    """The fonts, where the page asks for them."""
    known = assets()
    return Mount(known.font_path, StaticFiles(directory=known.fonts))


def is_public(path: str) -> bool:
    """What answers without a token: the fonts, and the page, which then says where to log in."""
    return ((path == "/ui" or path.startswith("/ui/")) and not path.startswith("/ui/api/")) or (
        path.startswith(assets().font_path)
    )
