"""ASGI application of the web console: its page, its files, and a notice if this installation does not contain it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import Response

from toolpost.console.files import (
    BUILD_COMMANDS,
    INDEX,
    ConsoleFile,
    console_folder,
    make_file,
    page_at,
    read_files,
)
from toolpost.toolbox.account_pages import notice_page
from toolpost.wire.compression import accepts_gzip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from starlette.types import Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Vary": "Accept-Encoding",
}
PAGES = frozenset({"", "approvals", "runs", "tools", "sources", "accounts", "insight", "audit", "settings", "sign-in"})
"""The first segments of the paths that the page itself routes."""
OAUTH_CALLBACK = "/oauth/callback/"
_ASSETS = "/assets/"
_NOT_PAGES = ("/sign-in/start", "/sign-in/callback")  # of the sign-in with an issuer, which redirects
_MOST_DEPTH = 8
_IMMUTABLE = "public, max-age=31536000, immutable"


class ConsoleApp:
    """Serve the console in `folder`, by default the one of this installation; requests need no authentication.

    Every response is a file of the package, so no request can read data of the gateway. With `oauth_callback`, the
    page also finishes sign-ins at services. All files are read and compressed at the first request for one of them.
    """

    def __init__(self, folder: Traversable | None = None, *, oauth_callback: bool = False) -> None:
        self._folder = folder or console_folder()
        self._oauth_callback = oauth_callback
        self._root_files = frozenset(
            () if self._folder is None else (f"/{one.name}" for one in self._folder.iterdir() if one.is_file())
        ) - {f"/{INDEX}"}
        self._files: Mapping[str, ConsoleFile] = {}
        self._pages = dict[int, ConsoleFile]()  # by depth of the path
        self._reading = asyncio.Lock()

    def serves(self, scope: Scope) -> bool:
        """Return whether a GET or HEAD request is for a file or a page of the console."""
        path: str = scope["path"]
        return self._is_file(path) or (self._is_page(path) and _accepts_html(scope))

    def _is_page(self, path: str) -> bool:
        if self._oauth_callback and path.startswith(OAUTH_CALLBACK):
            return True
        return path.startswith("/") and path.split("/", 2)[1] in PAGES and path not in _NOT_PAGES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._respond(scope))(scope, receive, send)

    async def _respond(self, scope: Scope) -> Response:
        if self._folder is None:
            return _missing_console()
        path: str = scope["path"]
        found = await (
            self._find_file(path, self._folder) if self._is_file(path) else self._find_page(scope, self._folder)
        )
        if found is None:
            return _not_found()
        cache = _IMMUTABLE if path.startswith(_ASSETS) else "no-cache"
        return _send_file(found, Headers(scope=scope), cache=cache)

    def _is_file(self, path: str) -> bool:
        return path.startswith(_ASSETS) or path in self._root_files

    async def _find_file(self, path: str, folder: Traversable) -> ConsoleFile | None:
        async with self._reading:
            if not self._files:
                self._files = await asyncio.to_thread(read_files, folder)
        return self._files.get(path[1:])

    async def _find_page(self, scope: Scope, folder: Traversable) -> ConsoleFile | None:
        """Return the page for the depth of a path; a slash that a name contains is encoded in `raw_path`."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        depth = raw.partition(b"?")[0].count(b"/") - 1
        if depth not in self._pages:
            index = await self._find_file(f"/{INDEX}", folder)
            if index is None or depth > _MOST_DEPTH:
                return None
            self._pages[depth] = make_file(INDEX, page_at(index.content, depth))
        return self._pages[depth]


def _send_file(file: ConsoleFile, headers: Headers, *, cache: str) -> Response:
    # The ETag is weak, because it is the same for both encodings of the content (RFC 9110, 8.8.3).
    about = {**HEADERS, "Cache-Control": cache, "ETag": f"W/{file.etag}"}
    known = [one.strip().removeprefix("W/") for one in headers.get("if-none-match", "").split(",")]
    if file.etag in known:
        return Response(status_code=304, headers=about)
    if file.compressed and accepts_gzip(headers.get("accept-encoding", "")):
        about["Content-Encoding"] = "gzip"
        return Response(file.compressed, headers=about, media_type=file.media_type)
    return Response(file.content, headers=about, media_type=file.media_type)


def _not_found() -> Response:
    page = notice_page(404, "Not found", "The console has no such file. Reload the page to get its newest version.")
    return Response(page.body, page.status, dict(page.headers))


def _missing_console() -> Response:
    build, start = BUILD_COMMANDS
    page = notice_page(
        404,
        "The console is not in this installation",
        f"The gateway works without it. To build the console, run `{build}` in a clone of Toolpost, "
        f"then start the gateway again: `{start}`.",
        "Until then, `toolpost pending list` shows what needs an approval.",
    )
    return Response(page.body, page.status, dict(page.headers))


def _accepts_html(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"])
