"""JSON API of a provider: address, key in a header, and error mapping."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct, field

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolServerError,
)
from toolpost.contracts.records import represent
from toolpost.http.content import parse_json, parse_media_type
from toolpost.http.response_errors import extract_reason, response_error, sanitize
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.builtin.web_client import WebClient, WebResponse
    from toolpost.contracts.errors import ToolError
    from toolpost.wire.messages import Headers


_FINE = range(200, 300)
_ADDRESS = re.compile(r"""https?://[^\s<>"]{1,2000}""", re.IGNORECASE)
_SHORTEST_KEY = 12  # a shorter value in a query is a setting
# Brave rejects an invalid key with 422, Google with 400; other invalid requests have the same status.
_WRONG_KEY = re.compile(rb"SUBSCRIPTION_TOKEN_INVALID|x-subscription-token|API_KEY_INVALID|keyInvalid", re.IGNORECASE)
# Google and Bing use 403 both for missing permission and for an exceeded quota.
_TOO_MUCH = re.compile(
    rb"rateLimitExceeded|quotaExceeded|dailyLimitExceeded|RESOURCE_EXHAUSTED|out of call volume quota", re.IGNORECASE
)
_LOOKED_AT = 20_000
_WHOLE = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


class Api(Struct, frozen=True, kw_only=True):
    """Client of an API below one URL; `secrets` and keys in the URL's query are redacted from its results."""

    name: str
    web: WebClient
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("url", "headers", "secrets"))

    async def get(self, path: str = "", *, query: Mapping[str, str | int] | None = None) -> Any:
        return self.read(await self.send("GET", path, query=query))

    async def post(self, path: str, payload: Any) -> Any:
        body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
        return self.read(await self.send("POST", path, body=body))

    async def send(
        self, method: str, path: str = "", *, query: Mapping[str, str | int] | None = None, body: bytes | None = None
    ) -> WebResponse:
        """Send a request and return its response, regardless of the status.

        An address rejected by the guard is a failure of this provider only, and the next one is tried.
        """
        headers = {"Accept": "application/json", **self.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return await self.web.send(method, self._address(path, query or {}), headers=headers, body=body)
        except ToolPermissionError as refused:
            reason = str(refused).removeprefix("Permission denied: ")
            raise ToolClientError(f"{self.name} cannot be reached: {reason}", code="provider_refused") from None

    def read(self, response: WebResponse) -> Any:
        """Parse a response as JSON; raise a ToolError for a non-2xx status or invalid JSON."""
        if response.status not in _FINE:
            raise self.failure(response)
        try:
            document = parse_json(response.body)
        except ValueError as wrong:
            kind = parse_media_type(response.content_type).essence or "something unnamed"
            message = f"{kind} that is not JSON ({wrong})" if response.body.strip() else "nothing"
            raise self.unreadable(message) from None
        if is_object(document) and (error := document.get("error") or document.get("errors")):
            raise self._error_in_body(response, error)
        return self._redact(document, response.body)

    def failure(self, response: WebResponse) -> ToolError:
        return error_from_response(self.name, response, secrets=self._secrets())

    def unreadable(self, reason: str) -> ToolServerError:
        """Build the error for a response that this API cannot have sent."""
        message = f"{self.name} answered {reason}; is {shown_address(self.url)} the address of its API?"
        return ToolServerError(message, code="answer_unreadable")

    def _error_in_body(self, response: WebResponse, error: Any) -> ToolError:
        """Build the error for a 2xx response with an error in its body, by the status in the body."""
        parts = [error] if is_object(error) else objects(error)
        statuses = [part.get(key) for part in parts for key in ("status", "code", "statusCode")]
        named = next((one for one in statuses if isinstance(one, int) and 400 <= one <= 599), None)
        if named is not None:
            return self.failure(response._replace(status=named))
        reason = sanitize(extract_reason(response.headers, response.body), self._secrets())
        return ToolServerError(f"{self.name} answered with an error: {reason}")

    def _address(self, path: str, query: Mapping[str, str | int]) -> str:
        """Join the URL with path and query; a query in the operator's URL is kept."""
        base, _, own = self.url.partition("?")
        parameters = "&".join(part for part in (own, urlencode(query, errors="replace")) if part)
        return f"{base}{path}?{parameters}" if parameters else f"{base}{path}"

    def _secrets(self) -> tuple[str, ...]:
        """Return the secrets to redact, including keys in the operator's URL."""
        own = parse_qsl(self.url.partition("?")[2])
        return (*self.secrets, *(value for _, value in own if len(value) >= _SHORTEST_KEY))

    def _redact(self, document: Any, body: bytes) -> Any:
        """Redact the key from a document, in case the server repeats it."""
        redactor, text = Redactor(self._secrets()), body.decode("utf-8", "replace")
        if redactor.text(text) == text:
            return document
        try:
            return _each_text(document, redactor)
        except RecursionError:
            raise self.unreadable("JSON that is nested too deeply") from None


def require_key(key: str, name: str) -> str:
    """Return the key of a provider that needs one; raise a ToolAuthError if it is missing."""
    if not key:
        message = f"{name} needs a key; write it as apiKey beside its name in the configuration"
        raise ToolAuthError(message, code="key_missing")
    return key


def shown_address(url: str) -> str:
    """Return a URL without its user and its query, which may contain a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def objects(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects of the list at a path in a document; empty without such a list."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return [item for item in value if is_object(item)] if is_array(value) else []


def first_text(item: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these members that is a non-empty string."""
    return next((value for key in keys if isinstance(value := item.get(key), str) and value), "")


def page_address(address: str, request_url: str) -> str:
    """Return the address reported for a page, if valid; else the requested address."""
    return address if _ADDRESS.fullmatch(address) else request_url


def finite_number(item: Mapping[str, Any], key: str) -> float | None:
    """Return a member that is a finite number; else None."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def _each_text(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if is_object(value):
        return {redactor.text(name): _each_text(item, redactor) for name, item in value.items()}
    return [_each_text(item, redactor) for item in value] if is_array(value) else value


def error_from_response(name: str, response: WebResponse, *, secrets: tuple[str, ...] = ()) -> ToolError:
    """Map a response of a provider to an error, with secrets redacted."""
    remedy = f"Check the key of {name} in the configuration."
    status, body = response.status, response.body[:_LOOKED_AT]
    error = response_error(name, status, response.headers, response.body, remedy=remedy, secrets=secrets)
    if status in (400, 422) and _WRONG_KEY.search(body):
        wrong_key = f"{error.message.rstrip('.')}. {remedy}"
        return ToolAuthError(wrong_key, status_code=status, category=ErrorCategory.AUTH_REQUIRED)
    if status == 403 and _TOO_MUCH.search(body):
        wait = error.retry_after_s
        too_much = ErrorCategory.RETRYABLE_RATE_LIMIT
        error = ToolRateLimitError(error.message, status_code=status, category=too_much, retry_after_s=wait)
    if isinstance(error, ToolRateLimitError) and error.retry_after_s is None:
        error.retry_after_s = _until_reset(response.headers)
    return error


def _until_reset(headers: Headers) -> float | None:
    """Return the seconds until the rate limit resets. Brave has several windows, each with its own reset."""
    left = _numbers(headers.get("x-ratelimit-remaining"))
    resets = _numbers(headers.get("x-ratelimit-reset"))
    used_up = [reset for reset, rest in zip(resets, left, strict=False) if rest <= 0]
    return max(used_up, default=min(resets, default=None))


def _numbers(field: str | None) -> list[float]:
    parts = [part.strip() for part in (field or "").split(",")]
    return [float(part) for part in parts if _WHOLE.fullmatch(part)]
