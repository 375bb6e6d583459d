"""A shop: an API as people write them, with a document that its framework makes."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import (
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Response,
    Security,
    UploadFile,
)
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from fastapi.security import (
    APIKeyCookie,
    APIKeyHeader,
    APIKeyQuery,
    HTTPBasic,
    HTTPBasicCredentials,
    HTTPBearer,
    OAuth2,
)
from pydantic import BaseModel, Field

from tests.sources.openapi.apps.listening import listen

PICTURE = bytes(range(256)) * 4
app = FastAPI(title="Shop", version="1")


class Kind(StrEnum):
    BOOK = "book"
    TOY = "toy"


class Card(BaseModel):
    by: Literal["card"]
    number: str


class Cash(BaseModel):
    by: Literal["cash"]
    coins: list[int]


class Box(BaseModel):
    label: str
    inside: list["Box"] = []
    payment: Annotated[Card | Cash, Field(discriminator="by")] | None = None


@app.get("/items/{item_id}")
def item(
    item_id: str,
    kind: Kind = Kind.BOOK,
    tags: Annotated[list[str] | None, Query()] = None,
    *,
    sold: bool | None = None,
    price: float | None = None,
    x_trace: Annotated[str | None, Header()] = None,
    session: Annotated[str | None, Cookie()] = None,
) -> dict[str, Any]:
    return {**locals(), "kind": kind.value}


@app.head("/items/{item_id}")
def item_head(item_id: str) -> Response:
    return Response(headers={"ETag": f'"{item_id}"', "Set-Cookie": "secret=1"})


@app.delete("/items/{item_id}", status_code=204)
def remove(item_id: str) -> None:
    return None


@app.post("/boxes")
def pack(box: Box) -> Box:
    return box


@app.post("/numbers")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.post("/notes")
def note(body: str, text: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    return {"parameter": body, "carried": text}


@app.post("/maybe")
def maybe(box: Annotated[Box | None, Body()] = None) -> dict[str, Any]:
    return {"given": box is not None}


@app.post("/login")
def login(name: Annotated[str, Form()], scopes: Annotated[list[str], Form()], remember: Annotated[bool, Form()]) -> Any:
    return {"name": name, "scopes": scopes, "remember": remember}


@app.post("/upload")
async def upload(
    title: Annotated[str, Form()], cover: Annotated[UploadFile, File()], pages: Annotated[list[UploadFile], File()]
) -> Any:
    read = [[one.filename, one.content_type, base64.b64encode(await one.read()).decode()] for one in [cover, *pages]]
    return {"title": title, "files": read}


@app.post("/raw")
async def raw(data: Annotated[bytes, Body(media_type="application/octet-stream")]) -> int:
    return len(data)


@app.get("/failures/{status}")
def failure(status: int, after: str | None = None) -> Any:
    headers = {"Retry-After": after} if after else None
    raise HTTPException(status, detail=f"the shop says {status}", headers=headers)


@app.get("/problem")
def problem() -> Any:
    told = {"type": "about:blank", "title": "Out of stock", "detail": "Come back on Monday.", "status": 409}
    return JSONResponse(told, 409, media_type="application/problem+json")


@app.get("/crash")
def crash() -> Any:
    return HTMLResponse("<html><head><title>Oops</title></head><body><h1>Server\x1b[31m error</h1></body></html>", 500)


@app.get("/nowhere")
def nowhere() -> Any:
    return Response(status_code=302)


@app.post("/elsewhere")
def elsewhere() -> Any:
    return RedirectResponse("/items/1?token=abc", 307)


@app.get("/picture", responses={200: {"content": {"image/png": {}}}}, response_class=Response)
def picture() -> Any:
    return Response(PICTURE, media_type="image/png")


@app.get("/resource", responses={200: {"content": {"application/vnd.api+json": {}}}}, response_class=Response)
def resource() -> Any:
    return JSONResponse({"data": {"id": "1"}}, media_type="application/vnd.api+json")


@app.get("/page")
def page(number: int = 1, size: int = 2) -> Any:
    link = f'</page?number={number + 1}&size={size}>; rel="next", </page?number=1>; rel="first"'
    return JSONResponse([number, size], headers={"Link": link} if number < 3 else None)


@app.get("/cursor")
def cursor(cursor: str | None = None) -> dict[str, Any]:
    return {"items": [1, 2], "next_cursor": None if cursor else "c2"}


@app.get("/lines", response_class=Response)
def lines() -> Any:
    return StreamingResponse(iter(['{"n":1}\n', '{"n":2}\n']), media_type="application/x-ndjson")


@app.get("/events", response_class=Response)
def events() -> Any:
    said = ["event: start\ndata: hello\n\n", ': a comment\nid: 7\ndata: {"n":\ndata: 1}\n\n']
    return StreamingResponse(iter(said), media_type="text/event-stream")


@app.get("/endless", response_class=Response)
def endless() -> Any:
    async def said() -> AsyncIterator[str]:
        for number in itertools.count():
            yield f"data: {number}\n\ndata: half"
            await asyncio.sleep(600)

    return StreamingResponse(said(), media_type="text/event-stream")


@app.get("/wrong")
def wrong() -> dict[str, Any]:
    return HTMLResponse("<title>Sign in</title>Please sign in")  # type: ignore[return-value]


@app.get("/broken")
def broken() -> dict[str, Any]:
    return Response(b'{"a": 1,', media_type="application/json")  # type: ignore[return-value]


@app.get("/plain", response_class=PlainTextResponse)
def plain() -> str:
    return "gr\u00fc\u00dfe"


@app.get("/slow")
async def slow() -> str:
    await asyncio.sleep(600)
    return "at last"


@app.get("/keys/header")
def by_header(key: Annotated[str, Depends(APIKeyHeader(name="X-Key", scheme_name="headerKey"))]) -> str:
    return key


@app.get("/keys/query")
def by_query(key: Annotated[str, Depends(APIKeyQuery(name="key", scheme_name="queryKey"))]) -> str:
    return key


@app.get("/keys/cookie")
def by_cookie(key: Annotated[str, Depends(APIKeyCookie(name="sid", scheme_name="cookieKey"))]) -> str:
    return key


@app.get("/bearer")
def by_bearer(token: Annotated[Any, Depends(HTTPBearer(scheme_name="bearer"))]) -> str:
    return str(token.credentials)


@app.get("/basic")
def by_basic(who: Annotated[HTTPBasicCredentials, Depends(HTTPBasic(scheme_name="basic"))]) -> list[str]:
    return [who.username, who.password]


FLOWS: Any = {"clientCredentials": {"tokenUrl": "/token", "scopes": {"buy": "Buy things"}}}
GOOD: set[str] = set()
NUMBERS = itertools.count(1)


@app.post("/token")
async def token(
    grant_type: Annotated[str, Form()],
    client: Annotated[HTTPBasicCredentials, Depends(HTTPBasic(scheme_name="client"))],
    scope: Annotated[str, Form()] = "",
) -> Any:
    if unquote(client.password) != "s3cr3t/ü":  # RFC 6749 §2.3.1: form-encoded before it is joined
        return JSONResponse({"error": "invalid_client", "error_description": f"not {unquote(client.password)}"}, 401)
    await asyncio.sleep(0.05)  # long enough for others to ask meanwhile
    given = f"t{next(NUMBERS)}"
    GOOD.add(given)
    return {"access_token": given, "token_type": "bearer", "expires_in": 3600, "scope": scope, "grant": grant_type}


@app.post("/revoke")
def revoke() -> int:
    GOOD.clear()
    return next(NUMBERS)


@app.post("/buy")
def buy(authorization: Annotated[str, Security(OAuth2(flows=FLOWS, scheme_name="oauth"), scopes=["buy"])]) -> str:
    if authorization.removeprefix("Bearer ") not in GOOD:
        raise HTTPException(401, "unknown token", {"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return authorization


@app.get("/public", openapi_extra={"security": []})
def public(authorization: Annotated[str | None, Header()] = None, key: str | None = None) -> list[str | None]:
    return [authorization, key]


if __name__ == "__main__":
    listen(app)
