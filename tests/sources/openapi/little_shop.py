"""A small API with a document; the first line printed is its address."""

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, UploadFile

app = FastAPI(title="Little shop", openapi_url="/openapi.json")
ITEMS: dict[int, dict[str, Any]] = {1: {"id": 1, "name": "pen"}}


@app.get("/items/{item_id}", operation_id="get_item")
def get_item(item_id: int, q: str | None = None) -> dict[str, Any]:
    """Look at one item."""
    return {**ITEMS[item_id], "q": q}


@app.post("/items", status_code=201, operation_id="add_item")
def add_item(item: dict[str, Any]) -> dict[str, int]:
    """Add an item."""
    ITEMS[len(ITEMS) + 1] = item
    return {"id": len(ITEMS)}


@app.delete("/items/{item_id}", operation_id="delete_item")
def delete_item(item_id: int) -> dict[str, bool]:
    """Delete an item."""
    return {"deleted": ITEMS.pop(item_id, None) is not None}


@app.post("/upload", operation_id="upload")
async def upload(file: UploadFile) -> dict[str, Any]:
    """Take a file."""
    return {"name": file.filename, "size": len(await file.read())}


@app.get("/picture", operation_id="picture")
def picture() -> Any:
    """A picture."""
    from fastapi import Response  # noqa: PLC0415

    return Response(b"\x89PNG" + bytes(2000), media_type="image/png")


@app.get("/headers", operation_id="headers")
def headers(request: Request) -> dict[str, str]:
    """What arrived."""
    return dict(request.headers)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
