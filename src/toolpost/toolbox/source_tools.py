"""The tools of one source in the catalog, replaced without a gap, and their comparison with the lock file."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.auth.credentials import secrets_of
from toolpost.catalog.entry import declares_schemas
from toolpost.catalog.lock import Hold, pin_of
from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import SchemaChecks, new_entry
from toolpost.catalog.specs import HIDDEN
from toolpost.contracts.errors import ConfigError, ToolCollisionError, ToolError
from toolpost.policy.redaction import MASK, mask_url_secrets
from toolpost.schema.shared_definitions import SharedDefinitions, any_part
from toolpost.schema.validator import unchecked_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from toolpost.catalog.entry import Entry
    from toolpost.catalog.lock import Lock, Pin
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.tool import Tool


class _Prepared(NamedTuple):
    """A checked tool that replaces `replaced` in the catalog; without an entry the two are the same."""

    tool: Tool
    replaced: Tool | None
    entry: Entry | ToolError | None = None
    hold: Hold | None = None


class SourceTools:
    """The tools of a source in the catalog, those that were left out and why, and names that were taken."""

    def __init__(
        self,
        registry: ToolRegistry,
        config: ExternalToolConfig,
        overrides: Mapping[str, ToolOverride],
        *,
        rank: int = 0,
    ) -> None:
        self.pins: SourcePins | None = None
        self._registry = registry
        self._rank = rank
        self._config = config
        self._overrides = overrides
        self.tools: dict[str, Tool] = {}
        self.problems: list[str] = []
        self.collisions: dict[str, str] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._hidden: dict[str, Sequence[str]] = {}
        self._shared = SharedDefinitions()
        self._unchecked: list[str] | None = None

    @property
    def offered(self) -> int:
        """The number of tools that can be called, without hidden tools and helpers."""
        overridden = bool(self._config.overrides or self._overrides)
        own = [tool for tool in self.tools.values() if not tool.spec.is_helper]
        return sum(not self._hides(tool) for tool in own) if overridden else len(own)

    def prepare(self, source: ToolSource | None, tools: Sequence[Tool]) -> None:
        """Check the tools for `fill` without touching the catalog, so that a thread can do it."""
        checks = SchemaChecks()
        self._prepared = {tool.spec.name: self._prepare_one(tool, source, checks) for tool in tools}
        self._shared = checks.shared
        for tool in tools:
            _is_unchecked(tool.spec, self._shared)  # fills the cache of the definitions

    def _prepare_one(self, tool: Tool, source: ToolSource | None, checks: SchemaChecks | None = None) -> _Prepared:
        replaced = self.tools.get(tool.spec.name)
        if replaced is not None and replaced.spec == tool.spec:
            return _Prepared(tool, replaced)
        override = self._override(tool)
        try:
            entry = new_entry(
                tool, source=source, config=self._config, override=override, rank=self._rank, checks=checks
            )
            hold = None if self.pins is None else self.pins.hold(tool, partial(self._release, tool, source))
        except ToolError as error:
            return _Prepared(tool, replaced, error)
        return _Prepared(tool, replaced, entry, hold)

    def fill(self, source: ToolSource | None, tools: Sequence[Tool], problems: Sequence[str] = ()) -> None:
        """Replace the tools of the source in the catalog; tools that did not change are not touched."""
        prepared, self._prepared = self._prepared, {}
        ready = [self._ready(tool, source, prepared) for tool in tools]
        old, self.tools = self.tools, {}
        self.problems = list(problems)
        self.collisions = {}
        self._unchecked = None
        for one in ready:
            replaced = old.pop(one.tool.spec.name, None)
            if replaced is not None and one.entry is None:
                self.tools[one.tool.spec.name] = replaced
            elif one.entry is not None:
                self._add(one.tool, replaced, one.entry, one.hold)
        for gone in old.values():
            self._remove(gone)
        self.problems += self._hidden_characters()

    def _ready(self, tool: Tool, source: ToolSource | None, prepared: Mapping[str, _Prepared]) -> _Prepared:
        """Return the result of `prepare`, or check again if the catalog has changed since."""
        found = prepared.get(tool.spec.name)
        if found is not None and found.tool is tool and found.replaced is self.tools.get(tool.spec.name):
            return found
        return self._prepare_one(tool, source)

    @property
    def unchecked(self) -> list[str]:
        """A message that lists the tools with patterns that are not checked."""
        if self._unchecked is None:
            self._unchecked = self._describe_unchecked()
        return self._unchecked

    def _describe_unchecked(self) -> list[str]:
        own = declares_schemas(self._config)
        tools = [name for name, tool in self.tools.items() if not own and _is_unchecked(tool.spec, self._shared)]
        if not tools:
            return []
        shown = ", ".join(map(repr, tools[:3])) + (f" and {len(tools) - 3} more" if len(tools) > 3 else "")
        why = "cannot be matched in bounded time and are not checked; `toolpost tools show NAME` lists them"
        return [f"source {self._config.name!r}: patterns of {shown} {why}"]

    def clear(self) -> None:
        """Remove all tools of the source."""
        self.fill(None, ())

    def _add(self, tool: Tool, replaced: Tool | None, entry: Entry | ToolError, hold: Hold | None) -> None:
        """Register one tool in place of another; a broken one is left out and reported."""
        name, config = tool.spec.name, self._config
        try:
            if isinstance(entry, ToolError):
                raise entry
            self._place(entry, hold, replace=replaced is not None)
        except ToolError as error:
            if replaced is not None:
                self._remove(replaced)
            problem = f"tool {name!r} of source {config.name!r} is set aside: {error}"
            self.problems.append(problem)
            if isinstance(error, ToolCollisionError):
                self.collisions[name] = problem
            return
        self.tools[name] = tool
        self._hidden.pop(name, None)
        if hidden := entry.spec.extra.get(HIDDEN):
            self._hidden[name] = hidden

    def _place(self, entry: Entry, hold: Hold | None, *, replace: bool) -> None:
        if self._hides(entry.tool):
            self._registry.hidden[entry.original.name] = entry.original
            return
        if hold is not None:
            entry.apply_hold(hold)
        self._registry.place(entry, replace=replace)

    def _release(self, tool: Tool, source: ToolSource | None) -> None:
        """Register a tool that was held back, so that its calls run."""
        if self.tools.get(tool.spec.name) is tool:
            self._registry.register(
                tool, source=source, config=self._config, override=self._override(tool), replace=True, rank=self._rank
            )

    @property
    def held(self) -> list[str]:
        """A message for each tool that is held back."""
        entries = [self._registry.find(self._registered(tool)) for tool in self.tools.values() if not self._hides(tool)]
        remedy = "`toolpost lock diff` shows it, `toolpost lock approve {}` agrees to it"
        return [
            f"tool {entry.spec.name!r} is set aside: {entry.hold.reason}; {remedy.format(entry.original.name)}"
            for entry in entries
            if entry.hold is not None
        ]

    def _hidden_characters(self) -> Iterator[str]:
        """Report hidden characters in the definitions of tools."""
        self._hidden = {name: places for name, places in self._hidden.items() if name in self.tools}
        for name, places in self._hidden.items():
            for place in () if self._hides(self.tools[name]) else places:
                yield f"tool {name!r} of source {self._config.name!r}: hidden characters are taken out of its {place}"

    def _remove(self, tool: Tool) -> None:
        if self._hides(tool):
            self._registry.hidden.pop(tool.spec.name, None)
            return
        self._registry.unregister(self._registered(tool))

    def _registered(self, tool: Tool) -> str:
        """Return the name of a tool in the catalog."""
        override = self._override(tool)
        renamed = override.name if override is not None else None
        return canonical_name(tool.spec.source, renamed) if renamed else tool.spec.name

    def _override(self, tool: Tool) -> ToolOverride | None:
        if not (self._config.overrides or self._overrides):
            return None
        name = tool.spec.name
        own, general = self._config.overrides.get(name.partition(".")[2]), self._overrides.get(name)
        return _merge_overrides(general, own) if own is not None and general is not None else own or general

    def _hides(self, tool: Tool) -> bool:
        override = self._override(tool)
        return override is not None and override.hide


def _is_unchecked(spec: ToolSpec, shared: SharedDefinitions) -> bool:
    return any(any_part(schema or {}, _has_unchecked, shared) for schema in (spec.input_schema, spec.output_schema))


def _has_unchecked(schema: Any) -> bool:
    return bool(unchecked_patterns(schema))


def _merge_overrides(general: ToolOverride, own: ToolOverride) -> ToolOverride:
    """Merge two overrides of one tool; the source's own takes precedence."""
    return general.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


_SHORTEST_SECRET = 4


class SourcePins:
    """Compare the definitions of a source's tools with the lock file, and hold back those that differ."""

    def __init__(self, lock: Lock, config: ExternalToolConfig, secrets: Iterable[str]) -> None:
        self._lock = lock
        self._source = config.name
        self._secret_mask = _secret_mask(config, secrets, str(lock.path.parent))
        self._pins: dict[str, tuple[Tool, Pin]] = {}

    def pin(self, tool: Tool) -> Pin:
        """Return the current definition of a tool."""
        known = self._pins.get(tool.spec.name)
        if known is None or known[0] is not tool:
            known = self._pins[tool.spec.name] = (tool, pin_of(tool.spec, self._secret_mask))
        return known[1]

    def hold(self, tool: Tool, release: Callable[[], None]) -> Hold | None:
        """Return why a tool is held back, or None; `release` registers the tool normally."""
        pinned = self._lock.sources.get(self._source)
        if pinned is None:
            return None
        name, now = bare_name(tool), self.pin(tool)
        before = pinned.get(name)
        if before is not None and before.hash == now.hash:
            return None

        def accept() -> None:
            self._lock.pin(self._source, name, now)
            release()

        def is_settled() -> bool:
            try:
                kept = self._lock.sources.get(self._source, {}).get(name)
            except ConfigError:  # reported where the tool is approved; an unreadable lock file approves nothing
                return False
            if kept is None or kept.hash != now.hash:
                return False
            release()
            return True

        return Hold(name=tool.spec.name, before=before, after=now, accept=accept, is_settled=is_settled)


def bare_name(tool: Tool) -> str:
    """Return the name of a tool within its source."""
    return tool.spec.name.partition(".")[2]


def _secret_mask(config: ExternalToolConfig, secrets: Iterable[str], folder: str) -> Callable[[str], str]:
    """Return a function that masks the source's secrets and the folder of the lock file: both differ by machine.

    Only secrets in this source's configuration count, so that another source does not change the pins.
    """
    written = json.dumps(config.model_dump(mode="json"), ensure_ascii=False)
    own = {secret for secret in secrets if secret in written} | secrets_of(config)
    longest_first = sorted((secret for secret in own if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, MASK)
        return mask_url_secrets(text.replace(folder, ".") if folder != os.sep else text)

    return mask
