"""Read a YAML file strictly into plain data and replace `${VAR}` from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.records import represent
from toolpost.schema.json_values import is_array, is_object

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 100_000
MAX_DEPTH = 64
# Variables of these keys contain a path, which is not a secret and must stay readable.
_PATH_KEYS = frozenset({"data_dir", "dataDir", "allowed_paths", "allowedPaths", "cwd"})

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Keys = tuple[str | int, ...]

_SOURCE_LISTS: frozenset[Keys] = frozenset({("sources",), ("tools", "mcpServers"), ("tools", "mcp_servers")})
_IDENTIFYING = frozenset({"name", "transport"})  # without these a source cannot be reported


class ConfigDocument(Struct, frozen=True, kw_only=True):
    """The data of a file; `secrets` are the values that came from variables.

    `unset` has one message per source with unset variables, by the keys of its entry; the data keeps those
    references as written.
    """

    data: dict[str, Any]
    secrets: frozenset[str] = frozenset()
    unset: Mapping[Keys, str] = field(default_factory=dict[Keys, str])

    def __repr__(self) -> str:
        return represent(self, without=("data", "secrets"))


def read_document(path: Path, *, shown: str, environ: Mapping[str, str]) -> ConfigDocument:
    """Read a file with one mapping; an empty file is an empty mapping. ConfigError names file and line."""
    text = read_text(path, name=f"configuration file {shown!r}", max_bytes=MAX_BYTES)
    try:
        data = _parse(text, shown)
    except RecursionError:
        raise ConfigError(f"{shown} is nested more than {MAX_DEPTH} deep") from None
    if data is None:
        return ConfigDocument(data={})
    if not isinstance(data, dict):
        raise ConfigError(f"{shown} must contain keys and values (such as `policy: standard`), not {kind_of(data)}")
    substitution = _Substitution(shown, environ)
    replaced = substitution.walk(data, ())
    substitution.raise_missing()
    return ConfigDocument(data=replaced, secrets=frozenset(substitution.secrets), unset=substitution.unset())


def _parse(text: str, shown: str) -> Any:
    """Return the data of a text; ConfigError names the error in the file `shown`, RecursionError means deep nesting."""
    # The message of a YAML error quotes the file, which may contain secrets; only its problem and line are reported.
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader, only stricter
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{shown}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number that Python cannot represent
        raise ConfigError(f"{shown} is not valid YAML: {getattr(error, 'reason', error)}") from None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that rejects duplicate keys, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's signature
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                problem = f"key {key.value!r} is given twice (first in line {seen[key.value]}); keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen[key.value] = line
        return super().construct_mapping(node, deep)


def item_lines(path: Path, key: str) -> list[int]:
    """Return the lines of the items of a list at the top of a YAML file; empty if they cannot be found."""
    try:
        root = yaml.SafeLoader(path.read_text(encoding="utf-8")).get_single_node()
    except (OSError, ValueError, yaml.YAMLError):
        return []
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    node = next((value for name, value in pairs if name.value == key), None)
    return [item.start_mark.line + 1 for item in node.value] if isinstance(node, yaml.SequenceNode) else []


def key_text(keys: Keys) -> str:
    """Format the keys of a value as in `sources[0].name`."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys]
    return "".join(parts).removeprefix(".")


def kind_of(value: Any) -> str:
    """Name the type of a YAML value for an error message."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return "text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case _:
            return f"a {type(value).__name__}"


def read_text(path: Path, *, name: str, max_bytes: int, code: str | None = None) -> str:
    """Read a UTF-8 file; ConfigError, with the code, describes the error of the file of this name."""
    try:
        with path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name} does not exist; check its path", code=code) from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}", code=code) from error
    if len(raw) > max_bytes:
        raise ConfigError(f"{name} is larger than {max_bytes} bytes", code=code)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start})", code=code) from None


def _source_entry(keys: Keys) -> Keys | None:
    """Return the keys of the source entry that contains a value; None outside of entries, and for identifying keys."""
    size = 3 if keys[:1] == ("tools",) else 2
    entry = keys[:size]
    if entry[:-1] not in _SOURCE_LISTS or len(keys) <= size or keys[size] in _IDENTIFYING:
        return None
    return entry if isinstance(entry[-1], int) else None


class _Substitution:
    """Replace the variables of a document in one traversal, and collect all that are not set.

    A variable that is not set disables only the source that refers to it.
    """

    def __init__(self, shown: str, environ: Mapping[str, str]) -> None:
        self.secrets: set[str] = set()
        self._shown = shown
        self._environ = environ
        self._missing: dict[str, str] = {}
        self._of_sources: dict[Keys, dict[str, str]] = {}
        self._nodes = 0

    def walk(self, value: Any, keys: Keys) -> Any:
        self._count(keys)
        if isinstance(value, str):
            return _REFERENCE.sub(lambda match: self._value(match, keys), value) if "${" in value else value
        if is_array(value):
            return [self.walk(item, (*keys, n)) for n, item in enumerate(value)]
        if is_object(value):
            named = {self._key(key, keys): item for key, item in value.items()}
            return {key: self.walk(item, (*keys, key)) for key, item in named.items()}
        return value

    def raise_missing(self) -> None:
        """Raise ConfigError if a variable outside of sources is not set."""
        if self._missing:
            raise ConfigError(f"{self._shown}: {_not_set(self._missing)}")

    def unset(self) -> dict[Keys, str]:
        """Return one message per source with unset variables."""
        return {entry: _not_set(missing) for entry, missing in self._of_sources.items()}

    def _count(self, keys: Keys) -> None:
        # YAML aliases can expand a small file without limit.
        self._nodes += 1
        if len(keys) > MAX_DEPTH:
            raise ConfigError(f"{self._shown} is nested more than {MAX_DEPTH} deep")
        if self._nodes > MAX_NODES:
            raise ConfigError(f"{self._shown} contains more than {MAX_NODES} values; its aliases multiply")

    def _key(self, key: Any, keys: Keys) -> str:
        if not isinstance(key, str):
            place = f" below {key_text(keys)!r}" if keys else ""
            raise ConfigError(f"{self._shown}: key {key!r}{place} is {kind_of(key)}, not text; put it in quotes")
        return key

    def _value(self, match: re.Match[str], keys: Keys) -> str:
        name = match["name"]
        if name is None:  # `$${` is a literal `${`
            return "${"
        if not match["end"] or not _VARIABLE.fullmatch(name):
            wrong = f"{self._shown}: {key_text(keys)} has a `${{` that is not a variable"
            raise ConfigError(f"{wrong}; write ${{NAME}}, or $${{ to mean it literally")
        value = self._environ.get(name)
        if value is None:
            entry = _source_entry(keys)
            missing = self._missing if entry is None else self._of_sources.setdefault(entry, {})
            missing.setdefault(name, key_text(keys))
            return match[0] if entry is not None else ""
        if len(value) >= MIN_SECRET and _PATH_KEYS.isdisjoint(keys):
            self.secrets.add(value)
        return value


def _not_set(missing: Mapping[str, str]) -> str:
    listed = ", ".join(f"{name} (at {place})" for name, place in missing.items())
    one, it = ("variable is", "it") if len(missing) == 1 else ("variables are", "them")
    return f"environment {one} not set: {listed}; set {it}, here or in .env, or write $${{...}} for a plain $"
