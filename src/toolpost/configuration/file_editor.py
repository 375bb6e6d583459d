"""Add, remove and change sources in the text of `toolpost.yaml`; comments and everything else stay as written."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from toolpost.configuration.defaults import FILE_NAME
from toolpost.configuration.loading import environment, load_settings
from toolpost.configuration.secret_extraction import references
from toolpost.configuration.settings import Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.nearest_names import did_you_mean

_KEY = "sources"
_LISTS = (("sources",), ("tools", "mcpServers"), ("tools", "mcp_servers"))
_NULL = "tag:yaml.org,2002:null"
_UNSET = "unset"  # the value of variables that are not set while a file is only inspected
_WIDE = 1_000_000  # the YAML writer breaks no line


class InsertionError(ValueError):
    """Nothing can be added to the file safely; `snippet` is the YAML to paste in an editor."""

    def __init__(self, message: str, snippet: str) -> None:
        super().__init__(message)
        self.snippet = snippet


def config_path(config: Path | None) -> Path:
    """Return the absolute path of the given file, by default `toolpost.yaml` of the working folder, existing or not."""
    return (config or Path(FILE_NAME)).absolute()


def load_leniently(path: Path, environ: Mapping[str, str]) -> Settings | None:
    """Load a file even if variables are not set; None without a file."""
    if not path.exists():
        return None
    variables = {**dict.fromkeys(references(_read(path)), _UNSET), **environment(path.parent, environ)}
    try:
        return load_settings(path, environ=variables).settings
    except ConfigError:
        load_settings(path, environ=environ)  # The cause may be a variable that is not set: report that instead.
        raise


def add_sources(path: Path, sources: Sequence[ExternalToolConfig], *, environ: Mapping[str, str]) -> Settings:
    """Add sources to a file, which is created if it does not exist, and return its new settings.

    The file is replaced atomically, after the new text was parsed and differs from the old one by the new sources
    only.
    """
    target = path.resolve()
    before = _read(target) if target.exists() else ""
    after = insert_sources(before, sources)
    with _draft(target, after) as draft:
        settings = _check_draft(draft, target, environ)
        _replace(draft, target)
    return settings


def remove_source(path: Path, name: str) -> str:
    """Remove the entry of a source from a file and return the text of the entry.

    As with adding, the new text must parse to the same data without that source.
    """
    target = path.resolve()
    before = _read(target) if target.exists() else ""
    after, taken = cut_source(before, name)
    with _draft(target, after) as draft:
        _replace(draft, target)
    return taken


def cut_source(text: str, name: str) -> tuple[str, str]:
    """Return the text without a source's entry, and the entry; ConfigError if it is missing or cannot be removed."""
    try:
        where, node, number = _entry(text, name)
        after, taken = _cut(text, node, number)
        if yaml.safe_load(after) == _without_entry(yaml.safe_load(text), where, number):
            return after, taken
    except (yaml.YAMLError, _NoPlaceError):
        pass
    message = f"the entry of {name!r} cannot be removed safely because of how it is written; delete it in an editor"
    raise ConfigError(message, code="removal_impossible")


def read_entry(path: Path, name: str) -> ExternalToolConfig | None:
    """Return a source of the file as it is written, with references to variables; None if it cannot be read."""
    try:
        text = _read(path.resolve())
        where, _, number = _entry(text, name)
        entries = yaml.safe_load(text)
        for key in where:
            entries = entries[key]
        return ExternalToolConfig.model_validate(entries[number])
    except (ConfigError, yaml.YAMLError, ValueError):
        return None


def mark_trusted(path: Path, name: str, *, environ: Mapping[str, str]) -> None:
    """Write `trust: true` for one source of the file; ConfigError if that would change anything else."""
    if _value(_source_node(_read(path.resolve()), name), "trust") is not None:  # a person has decided
        raise ConfigError(f"trust: true cannot be added safely to {name!r} in {path.name}; add the line below its name")
    set_source_flags(path, name, {"trust": True}, environ=environ)


def set_source_flags(path: Path, name: str, flags: Mapping[str, bool], *, environ: Mapping[str, str]) -> Settings:
    """Write flags of one source, such as `enabled`; ConfigError if that would change anything else."""
    target = path.resolve()
    after = _read(target)
    for key, value in flags.items():
        changed = _with_flag(after, name, key, value=value)
        if changed is None:
            line = f"{key}: {json.dumps(value)}"
            raise ConfigError(f"{line} cannot be added safely to {name!r} in {path.name}; add the line below its name")
        after = changed
    with _draft(target, after) as draft:
        settings = _check_draft(draft, target, environ)
        _replace(draft, target)
    return settings


def _with_flag(text: str, name: str, key: str, *, value: bool) -> str | None:
    """Return the text with a flag of the source; None if that would change anything else."""
    where, node, number = _entry(text, name)
    entry, word = node.value[number], json.dumps(value)
    written = _value(entry, key)
    if written is not None:
        after = text[: written.start_mark.index] + word + text[written.end_mark.index :]
    else:
        (first, first_value), (_, last) = entry.value[0], entry.value[-1]
        if entry.flow_style:
            quoted = f'"{key}"' if text[first.start_mark.index] == '"' else key
            place, piece = last.end_mark.index, f", {quoted}: {word}"
        else:
            place = text.find("\n", first_value.end_mark.index)
            place, piece = (len(text) if place < 0 else place), f"\n{' ' * first.start_mark.column}{key}: {word}"
        after = text[:place] + piece + text[place:]
    expected = yaml.safe_load(text)
    entries = expected
    for step in where:
        entries = entries[step]
    entries[number][key] = value
    try:
        return after if yaml.safe_load(after) == expected else None
    except yaml.YAMLError:
        return None


def snippet(sources: Sequence[ExternalToolConfig]) -> str:
    """Return the sources as YAML, under the key `sources`."""
    return f"{_KEY}:\n{_block(sources, 2)}"


def insert_sources(text: str, sources: Sequence[ExternalToolConfig]) -> str:
    """Return the text with the sources added; InsertionError if that would change anything else."""
    newline = "\r\n" if "\r\n" in text else "\n"
    try:
        place, piece, end = _insertion(text, sources)
        after = text[:place] + piece.replace("\n", newline) + text[end:]
        document: dict[str, Any] = yaml.safe_load(text) or {}
        listed: list[Any] = [*(document.get(_KEY) or []), *map(source_data, sources)]
        if yaml.safe_load(after) == {**document, _KEY: listed}:
            return after
    except (yaml.YAMLError, _NoPlaceError):
        pass
    message = f"nothing can be added safely to {_KEY!r} because of how it is written; paste the new part in an editor"
    raise InsertionError(message, snippet(sources))


class _NoPlaceError(ValueError):
    """A document has no position where a source can be inserted."""


def _insertion(text: str, sources: Sequence[ExternalToolConfig]) -> tuple[int, str, int]:
    """Return the start of an insertion, its text, and the end of the text that it replaces."""
    root = yaml.SafeLoader(text).get_single_node()
    if root is None or root.tag == _NULL:
        return _at_the_end(text, snippet(sources))
    if not isinstance(root, yaml.MappingNode) or root.flow_style or root.start_mark.column:
        raise _NoPlaceError
    nodes = [value for key, value in root.value if key.value == _KEY]
    if not nodes:
        return _at_the_end(text, snippet(sources))
    node = nodes[0]
    if isinstance(node, yaml.SequenceNode) and node.value:
        return _in_flow(text, node, sources) if node.flow_style else _in_block(text, node, sources)
    if isinstance(node, yaml.SequenceNode) or node.tag == _NULL:
        return _in_empty(text, node, sources)
    raise _NoPlaceError


def _at_the_end(text: str, piece: str) -> tuple[int, str, int]:
    gap = "" if not text or text.endswith("\n") else "\n"
    return len(text), gap + piece, len(text)


def _in_block(text: str, node: yaml.SequenceNode, sources: Sequence[ExternalToolConfig]) -> tuple[int, str, int]:
    """Insert below the last item; comments and blank lines before the next key stay with that key."""
    column = node.start_mark.column
    if text[node.start_mark.index] != "-":
        raise _NoPlaceError
    place = node.end_mark.index
    if place < len(text) or text.endswith("\n"):
        place = text.rfind("\n", 0, place) + 1
    while (line := _line_before(text, place)) is not None and _belongs_below(line, column):
        place -= len(line)
    gap = "" if text[:place].endswith("\n") else "\n"
    return place, gap + _block(sources, column), place


def _line_before(text: str, place: int) -> str | None:
    start = text.rfind("\n", 0, place - 1) + 1
    return text[start:place] if place > 0 and text[:place].endswith("\n") else None


def _belongs_below(line: str, column: int) -> bool:
    bare = line.strip()
    return not bare or (bare.startswith("#") and len(line) - len(line.lstrip()) < max(column, 1))


def _in_flow(text: str, node: yaml.SequenceNode, sources: Sequence[ExternalToolConfig]) -> tuple[int, str, int]:
    """Insert before the closing bracket; JSON is YAML of this style."""
    place = node.end_mark.index - 1
    between = text[node.value[-1].end_mark.index : place]
    has_comma = any("," in line.partition("#")[0] for line in between.splitlines())
    items = ", ".join(json.dumps(source_data(source), ensure_ascii=False) for source in sources)
    return place, items if has_comma else f", {items}", place


def _in_empty(text: str, node: yaml.Node, sources: Sequence[ExternalToolConfig]) -> tuple[int, str, int]:
    """Replace `[]` or null; a comment after it stays."""
    start, end = len(text[: node.start_mark.index].rstrip()), node.end_mark.index
    comment, _, _ = text[end:].partition("\n")
    return start, f"{comment.rstrip()}\n{_block(sources, 2)}", min(end + len(comment) + 1, len(text))


def _entry(text: str, name: str) -> tuple[tuple[str, ...], yaml.SequenceNode, int]:
    """Find the entry of a source: the keys of its list, the list node, and the index."""
    root, names = yaml.SafeLoader(text).get_single_node(), list[str]()
    for where in _LISTS:
        node = root
        for key in where:
            node = _value(node, key)
        if not isinstance(node, yaml.SequenceNode):
            continue
        for number, item in enumerate(node.value):
            name_node = _value(item, "name")
            names.append("" if name_node is None else str(name_node.value))
            if names[-1] == name:
                return where, node, number
    hint = did_you_mean(name, names) or f"there are: {', '.join(filter(None, names)) or 'none'}"
    raise ConfigError(f"there is no source {name!r} in the file; {hint}", code="source_not_found")


def _source_node(text: str, name: str) -> yaml.Node:
    _, node, number = _entry(text, name)
    entry: yaml.Node = node.value[number]
    return entry


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _cut(text: str, node: yaml.SequenceNode, number: int) -> tuple[str, str]:
    """Return the text without one item of a list, and the item."""
    start, end = node.value[number].start_mark.index, node.value[number].end_mark.index
    if node.flow_style:
        following = node.value[number + 1 : number + 2]
        if following:
            return text[:start] + text[following[0].start_mark.index :], text[start:end]
        before = node.value[number - 1].end_mark.index if number else start
        return text[:before] + text[end:], text[start:end]
    start = text.rfind("\n", 0, start) + 1
    end = _end_of_item(text, start, end)
    if len(node.value) > 1:
        return text[:start] + text[end:], text[start:end]
    key = text[:start].rstrip().rfind(":") + 1  # the only item: the key alone would be null, not a list
    return f"{text[:key]} []{text[key:start]}{text[end:]}", text[start:end]


def _end_of_item(text: str, start: int, end: int) -> int:
    """Return the end of the last line of an item; comments and blank lines below it stay."""
    if text[text.rfind("\n", 0, end) + 1 : end].strip():  # within a line: remove the whole line
        end = text.find("\n", end) + 1 or len(text)
    last = start
    for line in text[start:end].splitlines(keepends=True):
        start += len(line)
        if line.strip() and not line.lstrip().startswith("#"):
            last = start
    return last


def _without_entry(data: Any, where: tuple[str, ...], number: int) -> Any:
    key, *deeper = where
    if deeper:
        return {**data, key: _without_entry(data[key], tuple(deeper), number)}
    return {**data, key: [*data[key][:number], *data[key][number + 1 :]]}


def source_data(source: ExternalToolConfig) -> dict[str, Any]:
    """Return a source as plain data without defaults."""
    return source.model_dump(mode="json", exclude_defaults=True)


def _block(sources: Sequence[ExternalToolConfig], column: int) -> str:
    dumped = yaml.safe_dump(
        [source_data(source) for source in sources], sort_keys=False, allow_unicode=True, width=_WIDE
    )
    return "".join(f"{' ' * column}{line}" for line in dumped.splitlines(keepends=True))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None


@contextmanager
def _draft(target: Path, text: str) -> Generator[Path]:
    """Write a draft beside the target, where relative paths resolve alike and a rename replaces the target."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        with draft.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _check_draft(draft: Path, target: Path, environ: Mapping[str, str]) -> Settings:
    try:
        settings = load_leniently(draft, environ)
    except ConfigError as error:
        raise ConfigError(str(error).replace(draft.name, target.name)) from None
    if settings is None:
        raise ConfigError(f"{target} cannot be written: its new text went missing")
    return settings


def _replace(draft: Path, target: Path) -> None:
    """Rename the draft to the target, with the owner and mode of the target."""
    if target.exists():
        status = target.stat()
        with suppress(PermissionError):
            os.chown(draft, status.st_uid, status.st_gid)
        draft.chmod(status.st_mode & 0o7777)
    draft.replace(target)
