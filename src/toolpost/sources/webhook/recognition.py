"""Tells an n8n by what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.schema.jsontypes import is_object
from toolpost.web.contents import parsed_json
from toolpost.web.media_types import media_type

if TYPE_CHECKING:
    from toolpost.wire.headers import Headers

_LONGEST_LOOK = 64 * 1024
_ON_ITS_PAGE = (b'name="n8n:config:', b"<title>n8n.io - workflow automation")
# Its settings name these together; before somebody logged in, newer versions tell the first three only.
_IN_ITS_SETTINGS = (
    {"settingsMode", "userManagement", "authCookie"},
    {"versionCli", "endpointWebhook"},
    {"n8nMetadata", "userManagement"},
)


def looks_like_n8n(status: int, headers: Headers, body: bytes) -> bool:
    """Whether this is what an n8n answers to a GET of its base URL, of `/rest/settings` or of `/api/v1/workflows`.

    Its `/healthz` says `{"status": "ok"}`, as that of many others does, which speaks for nobody.
    """
    kind = media_type(headers.get("content-type") or "")
    if kind.essence == "text/html":
        page = body[:_LONGEST_LOOK].lower()
        return status == 200 and any(mark in page for mark in _ON_ITS_PAGE)
    if kind.kind != "json":
        return False
    return _is_its_json(status, body)


def _is_its_json(status: int, body: bytes) -> bool:
    try:
        told = parsed_json(body)
    except ValueError:
        return False
    if not is_object(told):
        return False
    if status == 401:
        return "x-n8n-api-key" in str(told.get("message")).lower()
    settings = told.get("data")
    return status == 200 and is_object(settings) and any(keys <= settings.keys() for keys in _IN_ITS_SETTINGS)
