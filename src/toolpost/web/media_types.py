"""Media types, read: what a type is called, its charset, and how bodies of that type are written and parsed."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["json", "lines", "events", "form", "multipart", "yaml", "xml", "text", "binary"]

OCTETS = "application/octet-stream"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's word for a name
_ESSENCE = re.compile(rf"\s*({_TOKEN}/{_TOKEN})\s*(?:;|$)")
_PARAMETER = re.compile(rf';\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))')

_BY_NAME: dict[str, Kind] = {
    "application/json": "json",
    "text/json": "json",
    "application/x-json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
    "application/x-jsonl": "lines",
    "application/jsonlines": "lines",
    "application/x-jsonlines": "lines",
    "application/json-lines": "lines",
    "application/json-seq": "lines",
    "application/stream+json": "lines",
    "text/event-stream": "events",
    "application/x-www-form-urlencoded": "form",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/javascript": "text",
    "application/ecmascript": "text",
    "application/graphql": "text",
    "application/jwt": "text",
    "application/sql": "text",
    "application/toml": "text",
    "application/x-sh": "text",
}
_BY_SUFFIX: dict[str, Kind] = {
    "+json": "json",
    "+json-seq": "lines",
    "+x-ndjson": "lines",
    "+ndjson": "lines",
    "+yaml": "yaml",
    "+xml": "xml",
}


class MediaType(NamedTuple):
    """A media type; `essence` is its name in lower case without parameters, empty when it cannot be read."""

    essence: str
    kind: Kind
    charset: str | None = None

    @property
    def is_range(self) -> bool:
        """Whether it stands for many types, such as `image/*`."""
        return "*" in self.essence


@lru_cache(maxsize=1024)
def media_type(text: str) -> MediaType:
    """Read a media type as it stands in a document or a header."""
    found = _ESSENCE.match(text)
    if found is None:
        return MediaType("*/*" if text.strip() == "*" else "", "binary")
    essence = found[1].lower()
    parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(text)}
    # Kubernetes streams one document a line under the name of a single one.
    kind = "lines" if parameters.get("stream") == "watch" else _kind(essence)
    return MediaType(essence, kind, _known_charset(parameters.get("charset")))


def _kind(essence: str) -> Kind:
    if essence in _BY_NAME:
        return _BY_NAME[essence]
    family, _, subtype = essence.partition("/")
    if family == "multipart":
        return "multipart"
    for suffix, kind in _BY_SUFFIX.items():
        if essence.endswith(suffix):
            return kind
    if subtype.startswith("x-amz-json"):
        return "json"
    return "text" if family == "text" else "binary"


def _known_charset(name: str | None) -> str | None:
    """The charset, if it is one of text: Python also knows codecs such as `zip`, which are not."""
    if not name:
        return None
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
