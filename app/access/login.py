"""Trades a token for the login cookie, with a page for people and JSON for programs.

The cookie is what `EventSource`, WebSockets and the official UI can send, since none of them can set a header. Nothing
is stored: logging out forgets the cookie in this browser only, taking the token out of the settings ends it everywhere.
That a foreign page cannot log a visitor in is the gate's Origin check.

Deliberate: the page has `Referrer-Policy: same-origin` where all else has `no-referrer`, under which browsers send its
own form with `Origin: null`, and the gate would refuse it.
"""

import base64
import hashlib
import html
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from string import Template
from urllib.parse import parse_qs

import orjson
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.access.principals import COOKIE_NAME, LOCAL, Credential, Principals
from app.access.refusal import refusal_body, refusal_headers
from app.errors import BadRequest, TarkoError, TooLarge, Unauthenticated

LARGEST_BODY = 8 * 1024

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 16
_NO_STORE = {"cache-control": "no-store"}
# Browsers read `\` as `/` and skip tabs and line ends: only visible ASCII, and no second slash of either kind.
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-~]*")

# The console's colours (`web/src/style/colours.css`).
_STYLE = """
:root {
  color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif;
  color: light-dark(#1a1e26, #e8eaee); background: light-dark(#f6f7f9, #14171d);
}
body { display: grid; place-items: center; min-height: 90vh; margin: 0 1rem; }
form {
  display: grid; gap: .75rem; box-sizing: border-box; width: min(24rem, 100%); padding: 1.75rem;
  border: 1px solid light-dark(#dfe2e8, #303642); border-radius: 14px; background: light-dark(#fff, #1b1f27);
}
h1 { font-size: 1.25rem; margin: 0; }
p { margin: 0; }
[role=alert] { color: light-dark(#b3261e, #ff8a80); }
label { font-weight: 600; }
input, button { font: inherit; padding: .5rem .75rem; border: 1px solid light-dark(#8b93a1, #7a8496); border-radius: 9px; }
input { background: light-dark(#fff, #14171d); color: inherit; }
button {
  border-color: transparent; background: light-dark(#2f5bd7, #7f9ff5); color: light-dark(#fff, #10131a);
  font-weight: 600; cursor: pointer;
}
:focus-visible { outline: 2px solid light-dark(#2f5bd7, #7f9ff5); outline-offset: 2px; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE = Template(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in</title>
<style>{_STYLE}</style>
</head>
<body>
<form method="post" action="/login">
<h1>Log in</h1>
<p>This server asks for a token. Whoever runs it has one for you.</p>
$message
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input name="next" type="hidden" value="$next">
<button type="submit">Log in</button>
</form>
</body>
</html>
""")
_PAGE_HEADERS = _NO_STORE | {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What somebody sent to log in, and whether a form sent it."""

    token: str
    next: str
    by_form: bool


def login_router(
    principals: Principals, *, cookie_lifetime: int, now: Callable[[], float] = time.time
) -> APIRouter:
    """`GET /login`, `POST /login` and `POST /logout`, for the gate to leave public."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    async def show_page(request: Request) -> Response:
        target = local_path(request.query_params.get("next", "/"))
        return _page(target) if principals else _redirect(target)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        try:
            attempt = parse_attempt(request.headers.get("content-type", ""), await _read_body(request))
        except (BadRequest, TooLarge) as error:
            return _refused(error)
        if not principals:
            return _welcome(attempt, LOCAL)
        credential = principals.by_token(attempt.token)
        if credential is None:
            return _turned_away(attempt)
        response = _welcome(attempt, credential.principal)
        response.headers["set-cookie"] = _login_cookie(request, credential)
        return response

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        by_form = _media_type(request.headers.get("content-type", "")) == _FORM
        response = _redirect("/login") if by_form else JSONResponse({"principal": None}, headers=_NO_STORE)
        response.headers["set-cookie"] = _set_cookie(request, "", 0)
        return response

    def _login_cookie(request: Request, credential: Credential) -> str:
        return _set_cookie(request, credential.cookie(int(now()) + cookie_lifetime), cookie_lifetime)

    return router


def local_path(target: str) -> str:
    """`target` if it is a path of this server, else `/`: a login must not send anyone to a foreign site."""
    return target if _LOCAL_PATH.fullmatch(target) else "/"


def parse_attempt(content_type: str, body: bytes) -> Attempt:
    """Read a form with `token` and perhaps `next`, or a JSON object with `token`. Raises BadRequest."""
    media_type = _media_type(content_type)
    if media_type == _FORM:
        return _parse_form(body)
    if media_type == "application/json":
        return _parse_json(body)
    raise BadRequest(f"Expected a body of type application/json or {_FORM}, got {media_type or 'no type'!r}.")


def _parse_form(body: bytes) -> Attempt:
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise BadRequest(f"Expected a form of at most {_MOST_FIELDS} fields.") from error
    # A token pasted by hand easily brings a line end along.
    token = fields.get("token", [""])[0].strip()
    return Attempt(token=token, next=local_path(fields.get("next", ["/"])[0]), by_form=True)


def _parse_json(body: bytes) -> Attempt:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest("The body is not JSON.") from error
    token = content.get("token") if isinstance(content, dict) else None
    if not isinstance(token, str):
        raise BadRequest('Expected a JSON object such as {"token": "…"}.')
    return Attempt(token=token, next="/", by_form=False)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > LARGEST_BODY:
                raise TooLarge(f"A login is at most {LARGEST_BODY} bytes long.")
    return bytes(body)


def _welcome(attempt: Attempt, principal: str) -> Response:
    if attempt.by_form:
        return _redirect(attempt.next)
    return JSONResponse({"principal": principal}, headers=_NO_STORE)


def _turned_away(attempt: Attempt) -> Response:
    error = Unauthenticated("The token is not known here.")
    if not attempt.by_form:
        return _refused(error)
    page = _page(attempt.next, message=str(error), status=error.status)
    page.headers["www-authenticate"] = refusal_headers(error)["www-authenticate"]
    return page


def _page(target: str, *, message: str = "", status: int = 200) -> Response:
    alert = f'<p role="alert">{html.escape(message)}</p>' if message else ""
    content = _PAGE.substitute(message=alert, next=html.escape(target))
    return HTMLResponse(content, status_code=status, headers=_PAGE_HEADERS)


def _redirect(target: str) -> Response:
    return Response(status_code=303, headers={"location": target} | _NO_STORE)


def _refused(error: TarkoError) -> Response:
    return Response(refusal_body(error), status_code=error.status, headers=refusal_headers(error) | _NO_STORE)


def _set_cookie(request: Request, value: str, max_age: int) -> str:
    # Written out: the standard library puts a value with `@` in quotes, which the gate would have to undo.
    secure = "; Secure" if _came_by_https(request) else ""
    return f"{COOKIE_NAME}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _came_by_https(request: Request) -> bool:
    # Anyone may write this header; all it can do is make the writer's own cookie stricter.
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
