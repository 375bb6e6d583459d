"""The JSON API of a provider: its address, its key in a header, and its failures as errors."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolpost.builtin.providers.complaints import complaint
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolPermissionError, ToolServerError
from toolpost.policy.redaction import Redactor
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.contents import parsed_json
from toolpost.web.failures import presentable, reason_of
from toolpost.web.media_types import media_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.builtin.web_access import Answer, Web
    from toolpost.contracts.errors import ToolError

_FINE = range(200, 300)
_ADDRESS = re.compile(r"""https?://[^\s<>"]{1,2000}""", re.IGNORECASE)
_SHORTEST_KEY = 12  # what is shorter in a query is a setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API below one URL; `secrets`, and what the URL has in its query, never show in what it says."""

    name: str
    web: Web
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    async def get(self, path: str = "", *, query: Mapping[str, str | int] | None = None) -> Any:
        """What a GET gives."""
        return self.read(await self.ask("GET", path, query=query))

    async def post(self, path: str, payload: Any) -> Any:
        """What a POST of JSON gives."""
        body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
        return self.read(await self.ask("POST", path, body=body))

    async def ask(
        self, method: str, path: str = "", *, query: Mapping[str, str | int] | None = None, body: bytes | None = None
    ) -> Answer:
        """The answer as it is. An address that may not be asked is this provider's failure, not that of all."""
        headers = {"Accept": "application/json", **self.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return await self.web.ask(method, self._address(path, query or {}), headers=headers, body=body)
        except ToolPermissionError as refused:
            reason = str(refused).removeprefix("Permission denied: ")
            raise ToolClientError(f"{self.name} cannot be asked: {reason}", code="provider_refused") from None

    def read(self, answer: Answer) -> Any:
        """The JSON of an answer; a ToolError for one that is no success, or something else."""
        if answer.status not in _FINE:
            raise self.failure(answer)
        try:
            found = parsed_json(answer.body)
        except ValueError as wrong:
            kind = media_type(answer.content_type).essence or "something unnamed"
            said = f"{kind} that is not JSON ({wrong})" if answer.body.strip() else "nothing"
            raise self.unreadable(said) from None
        if is_object(found) and (error := found.get("error") or found.get("errors")):
            raise self._failure_within(answer, error)
        return self._concealed(found, answer.body)

    def failure(self, answer: Answer) -> ToolError:
        """The error that an answer stands for."""
        return complaint(self.name, answer, secrets=self._hushed())

    def unreadable(self, said: str) -> ToolServerError:
        """The error for an answer that is none of this API's."""
        message = f"{self.name} answered {said}; is {shown_address(self.url)} the address of its API?"
        return ToolServerError(message, code="answer_unreadable")

    def _failure_within(self, answer: Answer, error: Any) -> ToolError:
        """The error that came as a success: by the status that it names, else that of a server that failed."""
        parts = [error] if is_object(error) else objects(error)
        statuses = [part.get(key) for part in parts for key in ("status", "code", "statusCode")]
        named = next((one for one in statuses if isinstance(one, int) and 400 <= one <= 599), None)
        if named is not None:
            return self.failure(answer._replace(status=named))
        said = presentable(reason_of(answer.headers, answer.body), self._hushed())
        return ToolServerError(f"{self.name} answered with an error: {said}")

    def _address(self, path: str, query: Mapping[str, str | int]) -> str:
        """The URL to ask; one that was written with a query of its own keeps it."""
        base, _, own = self.url.partition("?")
        written = "&".join(part for part in (own, urlencode(query, errors="replace")) if part)
        return f"{base}{path}?{written}" if written else f"{base}{path}"

    def _hushed(self) -> tuple[str, ...]:
        """What must not be told: the key, also one that an operator wrote into the URL."""
        own = parse_qsl(self.url.partition("?")[2])
        return (*self.secrets, *(value for _, value in own if len(value) >= _SHORTEST_KEY))

    def _concealed(self, found: Any, body: bytes) -> Any:
        """The document without the key, should the other side repeat it."""
        redactor, written = Redactor(self._hushed()), body.decode("utf-8", "replace")
        if redactor.text(written) == written:
            return found
        try:
            return _each_text(found, redactor)
        except RecursionError:
            raise self.unreadable("JSON that is nested too deeply") from None


def keyed(key: str, name: str) -> str:
    """The key of a provider that cannot be asked without one."""
    if not key:
        message = f"{name} needs a key; write it as apiKey beside its name in the configuration"
        raise ToolAuthError(message, code="key_missing")
    return key


def shown_address(url: str) -> str:
    """A URL as an error may show it: a query may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def objects(value: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of a list inside a document; none where the document has no such list."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return [item for item in value if is_object(item)] if is_array(value) else []


def text(item: Mapping[str, Any], *keys: str) -> str:
    """The first of these members that is a text and not empty."""
    return next((value for key in keys if isinstance(value := item.get(key), str) and value), "")


def page_address(said: str, asked: str) -> str:
    """Where a page says it is, if that is an address; else where it was asked for."""
    return said if _ADDRESS.fullmatch(said) else asked


def number(item: Mapping[str, Any], key: str) -> float | None:
    """A member that is a number, and one that JSON can tell."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        told = float(value)
    except OverflowError:
        return None
    return told if math.isfinite(told) else None


def _each_text(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if is_object(value):
        return {redactor.text(name): _each_text(item, redactor) for name, item in value.items()}
    return [_each_text(item, redactor) for item in value] if is_array(value) else value
