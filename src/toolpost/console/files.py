"""Files of the web console: found in the package, compressed once, and kept in memory."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

INDEX = "index.html"
BUILD_COMMANDS = ("make console", "toolpost up")
_FOLDER = "static"
# Not the tables of the machine, which differ; browsers refuse scripts and styles of another type (`nosniff`).
_TYPES = {
    "": "text/plain",  # THIRD_PARTY_LICENSES
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED_ALREADY = frozenset({".ico", ".png", ".woff2"})
# References to files in the page, as the build writes them: relative to the page, or to the root.
_REFERENCE = re.compile(rb'((?:src|href)=")\.?/(?!/)')


class ConsoleFile(NamedTuple):
    """One file; `compressed` is empty if compression does not make it smaller. `etag` is that of the content."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def console_folder() -> Traversable | None:
    """Return the folder of the built console, or None if this installation does not contain it."""
    folder = files("toolpost.console").joinpath(_FOLDER)
    return folder if folder.joinpath(INDEX).is_file() else None


def read_files(folder: Traversable) -> Mapping[str, ConsoleFile]:
    """Return all files of a folder by their path in it, such as `assets/index-4f2a.js`."""
    return {path: make_file(path, content) for path, content in _walk(folder, "")}


@cache
def console_build() -> str | None:
    """Return the hash that identifies the build of this installation, as it was when the process first asked."""
    folder = console_folder()
    return None if folder is None else _digest(folder.joinpath(INDEX).read_bytes())


def make_file(path: str, content: bytes) -> ConsoleFile:
    """Return a file with its type, and compressed if that makes it smaller."""
    name = path.rpartition("/")[2]
    suffix = name[name.rfind(".") :] if "." in name else ""
    compressed = b"" if suffix in _COMPRESSED_ALREADY else gzip.compress(content, mtime=0)
    if len(compressed) >= len(content):
        compressed = b""
    return ConsoleFile(content, compressed, _TYPES.get(suffix, "application/octet-stream"), f'"{_digest(content)}"')


def page_at(content: bytes, depth: int) -> bytes:
    """Return the page for a path `depth` levels below the root: references are relative to that path.

    With relative references, the console works behind a reverse proxy that adds a path prefix.
    """
    root = b"../" * depth if depth else b"./"
    return _REFERENCE.sub(rb"\g<1>" + root, content)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for child in folder.iterdir():
        if child.is_dir():
            yield from _walk(child, f"{prefix}{child.name}/")
        else:
            yield f"{prefix}{child.name}", child.read_bytes()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
