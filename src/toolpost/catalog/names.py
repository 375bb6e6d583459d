"""Tool names: the canonical dotted one, and the ones that models accept."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from toolpost.contracts.errors import ToolCollisionError

NamingPolicy = Literal["double_underscore", "dotted", "sanitized"]

MODEL_NAME_LIMIT = 64
_CANONICAL = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_FOREIGN_LETTER = re.compile(r"[^\W\x00-\x7f]")
_HASH_CHARS = 8


def canonical_name(source: str, tool: str) -> str:
    """Build `source.tool`: replace characters that names may not contain, and cut it to the limit of model names.

    A shortened name, or one that loses letters of another script, ends with a hash of the original to stay unique.
    """
    part = _NOT_ALLOWED.sub("_", tool)
    room = MODEL_NAME_LIMIT - (len(source) + 2 if source else 0)
    if len(part) > room or _FOREIGN_LETTER.search(tool):
        digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
        part = f"{part[: max(0, room - _HASH_CHARS - 1)]}_{digest}"
    return f"{source}.{part}" if source else part


def check_canonical(name: str) -> None:
    """Reject a name that is not `tool` or `source.tool`, or that models do not accept."""
    if not _CANONICAL.fullmatch(name):
        msg = f"{name!r} is not a tool name: use A to Z, a to z, digits, _ and -, with at most one dot after the source"
        raise ToolCollisionError(msg, tool_name=name, code="name_invalid")
    if len(model_name(name)) > MODEL_NAME_LIMIT:
        msg = f"{name!r} is longer than the {MODEL_NAME_LIMIT} characters that models accept"
        raise ToolCollisionError(msg, tool_name=name, code="name_invalid")


def model_name(canonical: str, policy: NamingPolicy = "double_underscore") -> str:
    """Return the name that models use for a tool."""
    match policy:
        case "dotted":
            return canonical
        case "double_underscore":
            return canonical.replace(".", "__")
        case "sanitized":
            return canonical.replace(".", "_")


class ToolNameMap:
    """Two-way map between canonical names and model names; taken model names are rejected."""

    def __init__(self, policy: NamingPolicy = "double_underscore") -> None:
        self._policy: NamingPolicy = policy
        self._canonical: dict[str, str] = {}

    def copy(self) -> ToolNameMap:
        """Return a copy."""
        other = ToolNameMap(self._policy)
        other._canonical = self._canonical.copy()
        return other

    def add(self, canonical: str) -> str:
        """Map one more tool and return its model name."""
        alias = model_name(canonical, self._policy)
        taken = self._canonical.get(alias)
        if taken is not None:
            msg = f"tools {taken!r} and {canonical!r} would both be {alias!r} to a model; rename one of them"
            raise ToolCollisionError(msg, tool_name=canonical)
        self._canonical[alias] = canonical
        return alias

    def remove(self, canonical: str) -> None:
        """Remove one tool."""
        self._canonical.pop(model_name(canonical, self._policy), None)

    def to_model(self, canonical: str) -> str:
        """Return the model name of a canonical name."""
        return model_name(canonical, self._policy)

    def to_canonical(self, alias: str) -> str | None:
        """Return the canonical name of a model name; None if no tool has it."""
        return self._canonical.get(alias)
