"""Hashes of calls and tools, to which grants, pending actions and idempotency keys are bound."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.policy.call_summary import target_summary
from toolpost.schema.secrets import ANY, SecretPaths

if TYPE_CHECKING:
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.spec import ToolSpec


def call_hash(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return the hash of a tool and the exact arguments, to which a grant is bound."""
    return digest([tool_hash(spec), arguments])


def same_call_hash(
    tool: CalledTool, arguments: Mapping[str, Any], who: Principal, session: str, context: Sequence[Any] = ()
) -> str:
    """Return the hash that identifies a repeated call as one that waits; empty if it cannot be computed.

    `context` contains the values that a tool gets beside its arguments. A value that is not JSON counts by its type.
    """
    whole = [tool.digest, arguments, str(who), session, context]
    try:
        encoded = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(encoded.encode()).hexdigest()


def tool_hash(spec: ToolSpec) -> str:
    """Return the hash of a tool's description, schemas, effects and target."""
    effects = [spec.side_effects, spec.replay, *spec.safety]
    target = None if spec.target is None else spec.target.digest
    described = [spec.name, spec.version, spec.description, spec.input_schema, spec.output_schema, effects]
    return digest([*described, target])


def digest(value: Any) -> str:
    """Return the SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


class CalledTool(NamedTuple):
    """Facts of a tool, stored with a journaled intent, for a question about a call after the tool was removed.

    `digest` is the tool's hash, `secret` lists the secret paths of its arguments. `target` is as the source defined it
    and may contain secrets of the configuration.
    """

    digest: str = ""
    target: Mapping[str, str] = MappingProxyType({})
    secret: Sequence[Sequence[str]] | None = None

    @classmethod
    def of(cls, spec: ToolSpec, secret: SecretPaths) -> CalledTool:
        """Build the facts from a tool's spec and the secret paths of its arguments."""
        return cls(tool_hash(spec), target_summary(spec, str), sorted(secret))

    @property
    def secret_paths(self) -> SecretPaths:
        """The secret paths of the arguments; all paths if they are unknown."""
        return frozenset({(ANY,)} if self.secret is None else map(tuple, self.secret))
