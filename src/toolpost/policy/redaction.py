"""Redaction: known secrets by exact value, secret-like names and what a schema marks, before anything is told."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.contracts.events import JsonText
from toolpost.schema.secrets import is_secret_name, secret_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from toolpost.contracts.spec import ToolSpec

MASK = "[redacted]"
_SHORTEST_SECRET = 4  # shorter values would blot out ordinary text
_ARGUMENT_KEYS = frozenset({"params", "input", "arguments"})

Path = tuple[str, ...]


class Redactor:
    """Knows the secrets of one Toolbox and takes them out of whatever is to be told."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Remember more secrets, also as they look in JSON, in a URL and in base64."""
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                self._forms.update(_forms_of(secret))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """A text without the known secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def value(self, value: Any, *, secret: frozenset[Path] = frozenset(), path: Path = ()) -> Any:
        """A JSON value without known secrets, secret-like names and marked paths."""
        match value:
            case JsonText():
                return self.value(json.loads(value), secret=secret, path=path)
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(key)): self._member(str(key), item, secret, path) for key, item in value.items()}
            case list() | tuple():
                return [self.value(item, secret=secret, path=(*path, "*")) for item in value]
            case _:
                return value

    def _member(self, key: str, item: Any, secret: frozenset[Path], path: Path) -> Any:
        below = (*path, key)
        if item is not None and (below in secret or is_secret_name(key)):
            return MASK
        return self.value(item, secret=secret, path=below)

    def for_tool(self, spec: ToolSpec) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """The redaction of one tool's events; its schema is read when the first event is."""
        marked: frozenset[Path] | None = None

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal marked
            if marked is None:
                marked = secret_paths(spec.input_schema)
            return {key: self._fact(key, fact, marked) for key, fact in facts.items()}

        return redact

    def _fact(self, key: str, fact: Any, marked: frozenset[Path]) -> Any:
        return self.value(fact, secret=marked if key in _ARGUMENT_KEYS else frozenset())

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The redaction of events that belong to no known tool."""
        return {key: self.value(fact) for key, fact in facts.items()}


def _forms_of(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="replace"),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }
