"""The JSON API of a provider: its address, its key in a header, and its failures as errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from toolpost.contracts.errors import ToolAuthError, ToolServerError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.contents import parsed_json
from toolpost.web.failures import failure_of
from toolpost.web.media_types import media_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.builtin.web_access import Answer, Web

_FINE = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API below one URL; `secrets` never show in what it says of failures."""

    name: str
    web: Web
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    async def get(self, path: str = "", *, query: Mapping[str, str | int] | None = None) -> Any:
        """What a GET gives."""
        written = f"?{urlencode(query)}" if query else ""
        return self.read(await self.web.ask("GET", f"{self.url}{path}{written}", headers=self._sent()))

    async def post(self, path: str, payload: Any) -> Any:
        """What a POST of JSON gives."""
        headers = {**self._sent(), "Content-Type": "application/json"}
        body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
        return self.read(await self.web.ask("POST", f"{self.url}{path}", headers=headers, body=body))

    def read(self, answer: Answer) -> Any:
        """The JSON of an answer; a ToolError for one that is no success, or something else."""
        if answer.status not in _FINE:
            raise self.failure(answer)
        try:
            return parsed_json(answer.body)
        except ValueError as wrong:
            kind = media_type(answer.content_type).essence or "something unnamed"
            said = f"{kind} that is not JSON ({wrong})" if answer.body.strip() else "nothing"
            message = f"{self.name} answered {said}; is {self.url} the address of its API?"
            raise ToolServerError(message, code="answer_unreadable") from None

    def failure(self, answer: Answer) -> Exception:
        """The error that an answer stands for."""
        remedy = f"Check the key of {self.name} in the configuration."
        return failure_of(self.name, answer.status, answer.headers, answer.body, remedy=remedy, secrets=self.secrets)

    def _sent(self) -> dict[str, str]:
        return {"Accept": "application/json", **self.headers}


def keyed(key: str, name: str) -> str:
    """The key of a provider that cannot be asked without one."""
    if not key:
        message = f"{name} needs a key; write it as apiKey beside its name in the configuration"
        raise ToolAuthError(message, code="key_missing")
    return key


def objects(value: Any, *path: str) -> list[dict[str, Any]]:
    """The objects of a list inside a document; none where the document has no such list."""
    for key in path:
        value = value.get(key) if is_object(value) else None
    return [item for item in value if is_object(item)] if is_array(value) else []


def text(item: Mapping[str, Any], *keys: str) -> str:
    """The first of these members that is a text and not empty."""
    return next((value for key in keys if isinstance(value := item.get(key), str) and value), "")


def number(item: Mapping[str, Any], key: str) -> float | None:
    """A member that is a number."""
    value = item.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
