"""Shows what arrives: whatever is sent, the answer tells the raw request and what a server reads in it."""

from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tests.sources.openapi.apps.listening import listen


async def show(request: Request) -> JSONResponse:
    raw = await request.body()
    seen: dict[str, Any] = {
        "method": request.method,
        "target": (request.scope["raw_path"] + _query(request)).decode("latin-1"),
        "path": unquote(request.scope["raw_path"].decode("latin-1")),
        "query": parse_qsl(request.scope["query_string"].decode(), keep_blank_values=True),
        "headers": [[name.decode(), value.decode("utf-8", "replace")] for name, value in request.headers.raw],
        "cookies": {name: unquote(value.value) for name, value in SimpleCookie(request.headers.get("cookie")).items()},
        "body": raw.decode("latin-1"),
        "form": await _form(request),
    }
    return JSONResponse(seen)


def _query(request: Request) -> bytes:
    return b"?" + request.scope["query_string"] if request.scope["query_string"] else b""


async def _form(request: Request) -> list[Any] | None:
    if "form" not in request.headers.get("content-type", ""):
        return None
    return [[name, await _field(value)] for name, value in (await request.form()).multi_items()]


async def _field(value: str | UploadFile) -> Any:
    if isinstance(value, str):
        return value
    content = (await value.read()).decode("latin-1")
    return {"filename": value.filename, "content_type": value.content_type, "content": content}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """No router in between: it would have an opinion of its own about paths."""
    await (await show(Request(scope, receive)))(scope, receive, send)


if __name__ == "__main__":
    listen(app)
