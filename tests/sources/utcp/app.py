"""An app that manuals describe: it says what it was sent, in every way that a call template can ask for."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

PICTURE = b"\x89PNG\r\n" + bytes(range(256))
routes = web.RouteTableDef()
published: dict[str, bytes] = {}
tokens: list[str] = []


def said(request: web.Request, body: bytes) -> dict[str, Any]:
    query = {name: request.query.getall(name) for name in request.query}
    return {
        "method": request.method,
        "path": request.raw_path.partition("?")[0],
        "query": query,
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "cookies": dict(request.cookies),
        "body": body.decode(),
    }


@routes.route("*", "/echo{rest:.*}")
async def echo(request: web.Request) -> web.Response:
    return web.json_response(said(request, await request.read()))


@routes.put("/published/{name}")
async def publish(request: web.Request) -> web.Response:
    published[request.match_info["name"]] = await request.read()
    return web.Response(status=204)


@routes.get("/published/{name}")
@routes.get("/{name}/utcp")
async def document(request: web.Request) -> web.Response:
    body = published.get(request.match_info["name"])
    return web.Response(status=404) if body is None else web.Response(body=body, content_type="application/json")


@routes.get("/events")
async def events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(int(request.query.get("count", "3"))):
        kind = "event: odd\r\n" if number % 2 else ""
        await response.write(f"{kind}id: {number}\r\ndata: {json.dumps({'n': number})}\r\n\r\n".encode())
    await response.write(b": nothing\n\ndata: the\ndata: end\n\n")
    if request.query.get("endless"):
        await asyncio.Event().wait()
    return response


@routes.get("/lines")
async def lines(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    for piece in (b'{"n": 1}\n{"n"', b': "\xc3', b'\xbc"}\n', b"3"):
        await response.write(piece)
    return response


@routes.get("/endless-line")
async def endless_line(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    for _ in range(40):
        await response.write(b"x" * 1_000_000)
    return response


@routes.get("/picture")
async def picture(_: web.Request) -> web.Response:
    return web.Response(body=PICTURE, content_type="application/octet-stream")


@routes.get("/status/{status}")
async def status(request: web.Request) -> web.Response:
    body = {"detail": f"you sent {request.headers.get('Authorization', 'nothing')}"}
    return web.json_response(body, status=int(request.match_info["status"]), headers={"Retry-After": "0"})


@routes.get("/moved")
async def moved(_: web.Request) -> web.Response:
    raise web.HTTPFound("/echo/there")


@routes.post("/token")
async def token(request: web.Request) -> web.Response:
    form = await request.post()
    pair = base64.b64encode(b"me:s3cret-s3cret").decode()
    in_body = (form.get("client_id"), form.get("client_secret")) == ("me", "s3cret-s3cret")
    if not in_body and request.headers.get("Authorization") != f"Basic {pair}":
        return web.json_response({"error": "invalid_client"}, status=401)
    tokens.append(f"token-{len(tokens)}")
    return web.json_response({"access_token": tokens[-1], "token_type": "bearer", "expires_in": 3600})


@routes.post("/expire")
async def expire(_: web.Request) -> web.Response:
    tokens.append(f"token-{len(tokens)}")
    return web.Response(status=204)


@routes.route("*", "/guarded")
async def guarded(request: web.Request) -> web.Response:
    if not tokens or request.headers.get("Authorization") != f"Bearer {tokens[-1]}":
        return web.json_response({"error": "invalid_token"}, status=401)
    return web.json_response({"token": tokens[-1]})


@routes.post("/graphql")
async def graphql(request: web.Request) -> web.Response:
    asked = await request.json()
    name = asked["variables"].get("name")
    if name == "nobody":
        return web.json_response({"data": None, "errors": [{"message": "there is nobody of that name"}]})
    if name == "declined":
        return web.json_response({"data": {"pay": None}, "errors": [{"message": "card declined"}]})
    if name == "odd":
        return web.json_response({"data": None, "errors": "boom"})
    errors = {"errors": [{"message": "half of it is missing"}]} if name == "half" else {}
    return web.json_response({"data": {"hello": f"hello {name}", "query": asked["query"]}, **errors})


@routes.get("/ws")
async def websocket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=["chat"])
    await socket.prepare(request)
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        match message.data:
            case '{"type":"utcp"}' | '{"type": "utcp"}':
                await socket.send_bytes(published["ws"])
            case "hang up":
                await socket.close()
            case "silence":
                pass
            case text:
                authorization = request.headers.get("Authorization")
                await socket.send_json({"said": text, "authorization": authorization, "protocol": socket.ws_protocol})
    return socket


@routes.get("/openapi.json")
async def openapi(request: web.Request) -> web.Response:
    parameter = {"name": "q", "in": "query", "schema": {"type": "string"}}
    paths = {"/echo": {"get": {"operationId": "say", "summary": "costs $5", "parameters": [parameter]}}}
    servers = [{"url": f"http://{request.host}"}]
    head = {"openapi": "3.1.0", "info": {"title": "x", "version": "1"}}
    return web.json_response({**head, "servers": servers, "paths": paths})


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[int, int]]:
    """A TCP and a UDP port that say what they were sent."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    yield server.sockets[0].getsockname()[1], transport.get_extra_info("sockname")[1]
    transport.close()
    server.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lines are answered by lines, prefixed messages by prefixed ones, all else by an answer and the end."""
    sent = await reader.read(65536)
    if sent.startswith(b"\0\0"):
        told = b'{"prefixed": true}'
        writer.write(len(told).to_bytes(4, "big") + told)
    elif sent.endswith(b"\n"):
        writer.write(b"line: " + sent + b"and more")
    elif sent != b"silence":
        writer.write(b"got " + sent)
    if sent in (b"silence", b"stay"):
        await reader.read()
    await writer.drain()
    writer.close()


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if data == b"silence":
            return
        self._transport.sendto(b"one " + data, addr)
        self._transport.sendto(b" two", addr)


async def main() -> None:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with sockets() as (tcp, udp):
        print(json.dumps({"address": f"http://127.0.0.1:{runner.addresses[0][1]}", "tcp": tcp, "udp": udp}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
