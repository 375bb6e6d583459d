"""The tools of one source in the catalog: check a listing, draft the catalog with it, block changed definitions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolpost.auth.credentials import secrets_of
from toolpost.catalog.entry import Entry
from toolpost.catalog.lock import AGREED, FIRST_SEEN, Hold, Lock, Pin, differences, pin_of
from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import CatalogContents, SchemaChecks, new_entry
from toolpost.catalog.seen_definitions import SeenDefinitions, digest_of
from toolpost.catalog.specs import HIDDEN, has_plain_schemas
from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.errors import ConfigError, ToolCollisionError, ToolError
from toolpost.contracts.sources import ToolSource
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.policy.redaction import mask_url_secrets
from toolpost.policy.secret_shapes import MASK
from toolpost.schema.shared_definitions import SharedDefinitions, any_part

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import SourceTraits

CHANGE_REMEDY = "To see the change, run `toolpost lock diff`; to accept it, run `toolpost lock approve {}`"


class Catalog(Protocol):
    """The catalog that sources register their tools in: a `ToolRegistry`, or several as one."""

    def find(self, name: str) -> Entry:
        """Return the entry of a tool."""
        ...

    def draft(self) -> CatalogContents:
        """Copy the contents."""
        ...

    def commit(self, draft: CatalogContents) -> CatalogContents | None:
        """Replace the contents by a changed copy; None if they have changed since they were copied."""
        ...


class PreparedTool(NamedTuple):
    """A tool of a listing with its checked entry, or the error; None if the catalog already contains the tool."""

    tool: Tool
    entry: Entry | ToolError | None
    unchecked: bool  # some patterns of its schemas cannot be checked


class RegisteredTools(NamedTuple):
    """The tools of a source that are in the catalog, and messages about those that are not.

    `collided` are tools with taken names, `collisions` the problem of each by name. `held` are the names of blocked
    tools; `offered` is the number of tools that can be called, without hidden tools and helpers.
    """

    tools: Mapping[str, Tool]
    collisions: Mapping[str, str]
    problems: Sequence[str] = ()
    collided: Sequence[Tool] = ()
    held: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    offered: int = 0


class CatalogDraft(NamedTuple):
    """A changed copy of the catalog, and the listing of the source that changed it."""

    contents: CatalogContents
    listing: RegisteredTools


class SourceTools:
    """The tools of one source in the catalog. A thread checks a listing and drafts the catalog with its tools."""

    def __init__(
        self,
        registry: Catalog,
        config: ExternalToolConfig,
        overrides: Mapping[str, ToolOverride],
        *,
        traits: SourceTraits,
        rank: int = 0,
    ) -> None:
        self.traits = traits
        self.pins: SourcePins | None = None
        self.listing = RegisteredTools(tools={}, collisions={})
        self.withdrawn = False  # its tools no longer enter the catalog
        self._registry = registry
        self.rank = rank
        self.config = config
        self._overrides = overrides

    def prepare(self, source: ToolSource, tools: Sequence[Tool]) -> list[PreparedTool]:
        """Check the tools of a listing; those that did not change keep their entries."""
        checks, digest = SchemaChecks(), ""
        read_pins: Callable[[], Pinned | None] = _no_pins
        if self.pins is not None and not self.pins.knows(digest := self.pins.digest(tools)):
            read_pins = cache(self.pins.read)  # once for all tools
        prepared = [self._prepare_one(tool, source, checks, read_pins) for tool in tools]
        if self.pins is not None and read_pins is not _no_pins:
            self.pins.record(tools, digest)
        return prepared

    def _prepare_one(
        self, tool: Tool, source: ToolSource, checks: SchemaChecks, read_pins: Callable[[], Pinned | None]
    ) -> PreparedTool:
        earlier_tool = self.listing.tools.get(tool.spec.name)
        same = earlier_tool is not None and earlier_tool.spec == tool.spec
        entry = None if same else self._entry(tool, source, checks, read_pins)
        unchecked = not self.traits.declares_schemas and _is_unchecked(tool.spec, checks.shared)
        return PreparedTool(tool, entry, unchecked)

    def _entry(
        self, tool: Tool, source: ToolSource, checks: SchemaChecks, read_pins: Callable[[], Pinned | None]
    ) -> Entry | ToolError:
        """Return the entry of a tool, blocked if it differs from the lock file, or the error of the tool."""
        try:
            entry = self._new_entry(tool, source, checks)
            pinned = read_pins()
            if pinned is None or self.pins is None:
                return entry
            hold = self.pins.hold(tool, pinned, partial(self._release, tool, source))
        except ToolError as error:
            return error
        if hold is not None and (pinned.locked or self.pins.blocks()):
            entry.apply_hold(hold)
        elif hold is not None:
            entry.change = hold
        return entry

    def _new_entry(self, tool: Tool, source: ToolSource, checks: SchemaChecks | None = None) -> Entry:
        override = self._override(tool)
        return new_entry(
            tool,
            source=source,
            config=self.config,
            traits=self.traits,
            override=override,
            rank=self.rank,
            checks=checks,
        )

    def draft(
        self, prepared: Sequence[PreparedTool], problems: Sequence[str] = (), *, instead_of: SourceTools | None = None
    ) -> CatalogDraft:
        """Draft the catalog with these tools in place of the present ones of the source, or of `instead_of`."""
        contents = self._registry.draft()
        old, remarks = dict(self.listing.tools), list(problems)
        others = {} if instead_of is None else instead_of.shown_in(contents)
        tools: dict[str, Tool] = {}
        collisions: dict[str, str] = {}
        for tool, entry, _ in () if self.withdrawn else prepared:
            name = tool.spec.name
            replaced = old.pop(name, None)
            if entry is None:
                if replaced is not None:
                    tools[name] = replaced
                continue
            if isinstance(entry, Entry) and not self._hides(tool):
                replaced = replaced or others.pop(entry.spec.name, None)
            error = self._place(contents, entry, replaced)
            if error is None:
                tools[name] = tool
                continue
            remarks.append(f"tool {name!r} of source {self.config.name!r} is skipped: {error}")
            if isinstance(error, ToolCollisionError):
                collisions[name] = remarks[-1]
        for gone in old.values():
            self._remove(contents, gone)
        for name in others:
            contents.remove(name)
        contents.ordered()  # sorted now, not when it is first read
        return CatalogDraft(contents, self._describe(contents, tools, remarks, collisions, prepared))

    def shown_in(self, contents: CatalogContents) -> dict[str, Tool]:
        """Return the tools of this source in a draft, by name; drop the records of hidden ones."""
        shown: dict[str, Tool] = {}
        for tool in self.listing.tools.values():
            name = self._registered(tool)
            if self._hides(tool):
                contents.hidden.pop(tool.spec.name, None)
            elif (entry := contents.entries.get(name)) is not None and entry.tool is tool:
                shown[name] = tool
        return shown

    def give_up(self) -> None:
        """Drop the tools that another source has replaced; no more of them enter the catalog."""
        self.withdrawn, self.listing = True, RegisteredTools(tools={}, collisions={})

    def _place(self, contents: CatalogContents, entry: Entry | ToolError, replaced: Tool | None) -> ToolError | None:
        """Put an entry in place of a tool; if it cannot be used, remove both and return the error."""
        try:
            if isinstance(entry, ToolError):
                raise entry
            if self._hides(entry.tool):
                contents.hidden[entry.original.name] = entry.original
            else:
                contents.place(entry, replace=replaced is not None)
        except ToolError as error:
            if replaced is not None:
                self._remove(contents, replaced)
            return error
        return None

    def _remove(self, contents: CatalogContents, tool: Tool) -> None:
        if self._hides(tool):
            contents.hidden.pop(tool.spec.name, None)
            return
        entry = contents.entries.get(self._registered(tool))
        if entry is not None and entry.tool is tool:  # the host may have removed or replaced it
            contents.remove(entry.spec.name)

    def _describe(
        self,
        contents: CatalogContents,
        tools: Mapping[str, Tool],
        problems: list[str],
        collisions: Mapping[str, str],
        prepared: Sequence[PreparedTool],
    ) -> RegisteredTools:
        """Count and describe the tools that the catalog will have."""
        names = [self._registered(tool) for tool in tools.values() if not self._hides(tool)]
        shown = [contents.entries[name] for name in names if name in contents.entries]
        for entry in shown:
            for place in entry.spec.extra.get(HIDDEN, ()):
                where = f"tool {entry.original.name!r} of source {self.config.name!r}"
                problems.append(f"{where}: hidden characters were removed from its {place}")
        return RegisteredTools(
            tools=tools,
            problems=problems,
            collisions=collisions,
            collided=[one.tool for one in prepared if one.tool.spec.name in collisions],
            held=[entry.spec.name for entry in shown if entry.unaccepted is not None],
            unchecked=self._describe_unchecked([one.tool.spec.name for one in prepared if one.unchecked], tools),
            offered=sum(not entry.original.is_helper for entry in shown),
        )

    def _describe_unchecked(self, names: Iterable[str], tools: Collection[str]) -> list[str]:
        """Return a message that names the tools with patterns that are not checked."""
        tool_names = [name for name in names if name in tools]
        if not tool_names:
            return []
        shown = ", ".join(map(repr, tool_names[:3])) + (
            f" and {len(tool_names) - 3} more" if len(tool_names) > 3 else ""
        )
        why = "cannot be matched in bounded time and are not checked; `toolpost tools show NAME` lists them"
        return [f"source {self.config.name!r}: patterns of {shown} {why}"]

    def commit(self, draft: CatalogDraft) -> list[Any] | None:
        """Put a draft into effect and return the parts that it replaced; None if the draft is out of date."""
        if self.withdrawn and draft.listing.tools:
            return None
        before = self._registry.commit(draft.contents)
        if before is None:
            return None
        replaced, self.listing = [before, self.listing], draft.listing
        return replaced

    def clear(self) -> None:
        """Remove the tools from the catalog."""
        if self.listing.tools:
            self.commit(self.draft(()))

    def _release(self, tool: Tool, source: ToolSource) -> None:
        """Register a tool that was blocked; its calls then run."""
        if self.listing.tools.get(tool.spec.name) is tool:
            contents = self._registry.draft()
            contents.place(self._new_entry(tool, source), replace=True)
            self._registry.commit(contents)

    @property
    def held(self) -> list[str]:
        """A message for each tool that is blocked or has a changed definition."""
        entries = [self._registry.find(name) for name in self.listing.held]
        return [
            f"tool {entry.spec.name!r}{' is blocked' if entry.hold else ''}: {change.reason}. "
            + CHANGE_REMEDY.format(entry.original.name)
            for entry in entries
            if (change := entry.unaccepted) is not None and (entry.hold is not None or not change.is_settled())
        ]

    def _registered(self, tool: Tool) -> str:
        """Return the name of a tool in the catalog."""
        override = self._override(tool)
        renamed = override.name if override is not None else None
        return canonical_name(tool.spec.source, renamed) if renamed else tool.spec.name

    def _override(self, tool: Tool) -> ToolOverride | None:
        if not (self.config.overrides or self._overrides):
            return None
        name = tool.spec.name
        own, general = self.config.overrides.get(name.partition(".")[2]), self._overrides.get(name)
        if own is None or general is None:
            return own or general
        return general.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})

    def has_overrides(self, overrides: Mapping[str, ToolOverride]) -> bool:
        """Return whether the tools of this source were registered with these overrides."""
        return _overrides_of(self.config.name, overrides) == _overrides_of(self.config.name, self._overrides)

    def _hides(self, tool: Tool) -> bool:
        override = self._override(tool)
        return override is not None and override.hide


def _no_pins() -> None:
    """Return the pins where nothing is compared."""


def free_replaced(replaced: list[Any]) -> None:
    """Free the tools of a replaced catalog and listing one by one; together they would hold the GIL too long."""
    contents, listing = replaced
    replaced.clear()
    parts = [*contents.entries.values(), *listing.tools.values()]
    del contents, listing
    while parts:
        parts.pop()


def _is_unchecked(spec: ToolSpec, shared: SharedDefinitions) -> bool:
    if has_plain_schemas(spec, shared):
        return False
    schemas = (schema for schema in (spec.input_schema, spec.output_schema) if schema)
    # A schema without a text may have patterns, too.
    suspects = (one for one in schemas if (text := shared.text(one)) is None or '"pattern' in text)
    return any(any_part(schema, _has_unchecked, shared) for schema in suspects)


def _has_unchecked(schema: Any) -> bool:
    from toolpost.schema.validator import unchecked_patterns  # noqa: PLC0415 - without sources it is not needed

    return bool(unchecked_patterns(schema))


def _overrides_of(source: str, overrides: Mapping[str, ToolOverride]) -> dict[str, ToolOverride]:
    return {name: override for name, override in overrides.items() if name.partition(".")[0] == source}


def _never() -> bool:
    return False


class Pinning(NamedTuple):
    """The accepted definitions of tools: a lock file, and definitions as first seen below the folder `definitions`.

    `blocks_changes` says whether a change of a first seen definition blocks calls; a change against the lock file
    always does.
    """

    lock: Lock | None = None
    definitions: Path | None = None
    blocks_changes: Callable[[], bool] = _never


class Pinned(NamedTuple):
    """The definitions that a source's tools are compared with, and whether they come from a lock file.

    `written_at` is when their file was written; they were accepted then or before.
    """

    pins: Mapping[str, Pin]
    locked: bool
    written_at: float | None = None


class SourcePins:
    """Compare the definitions of a source's tools with the lock file, and block those that differ.

    If the lock file does not contain the source, they are compared with the first `seen` definitions. `blocks` says
    whether a change of these blocks a tool. `report` is called with the name and the facts of each new change.
    """

    def __init__(
        self,
        lock: Lock | None,
        config: ExternalToolConfig,
        secrets: Iterable[str],
        *,
        seen: SeenDefinitions | None = None,
        blocks: Callable[[], bool] = _never,
        report: Callable[[str, Mapping[str, Any]], None] = lambda _name, _facts: None,
    ) -> None:
        self._lock = lock
        self._seen = seen
        self._report = report
        self.blocks = blocks
        self._source = config.name
        self._secret_mask = _secret_mask(config, secrets, os.sep if lock is None else str(lock.path.parent))
        self._pins: dict[str, tuple[Tool, Pin]] = {}

    def pin(self, tool: Tool) -> Pin:
        """Return the current definition of a tool."""
        pin = self._pins.get(tool.spec.name)
        if pin is None or pin[0] is not tool:
            pin = self._pins[tool.spec.name] = (tool, pin_of(tool.spec, self._secret_mask))
        return pin[1]

    def read(self) -> Pinned | None:
        """Return the source's pins in the lock file, else its first seen definitions, if recorded."""
        locked = None if self._lock is None else self._lock.sources.get(self._source)
        if locked is not None:
            return Pinned(locked, locked=True, written_at=None if self._lock is None else self._lock.written_at)
        if self._seen is None:
            return None
        return Pinned(self._seen.pins, locked=False, written_at=self._seen.written_at)

    def digest(self, tools: Sequence[Tool]) -> str:
        """Return the digest of a listing; empty if definitions are not recorded."""
        try:
            is_locked = self._lock is not None and self._source in self._lock.sources
        except ConfigError:  # reported for each tool
            is_locked = True
        return "" if self._seen is None or is_locked else digest_of(tools)

    def knows(self, digest: str) -> bool:
        """Return whether a listing equals the recorded one."""
        return self._seen is not None and self._seen.knows(digest)

    def record(self, tools: Sequence[Tool], digest: str) -> None:
        """Record new definitions, and report changes; nothing is recorded if the lock file contains the source."""
        if self._seen is None or not digest:
            return
        before = self._seen.pins
        pins = {bare_name(tool): self.pin(tool) for tool in tools}
        for name in self._seen.record(pins, digest):
            parts = [change.part for change in differences(before[name], pins[name])]
            facts = {"tool": f"{self._source}.{name}", "changed": parts, "hash": pins[name].hash}
            self._report(self._source, {**facts, "blocked": self.blocks()})

    def hold(self, tool: Tool, pinned: Pinned, release: Callable[[], None]) -> Hold | None:
        """Return the hold of a changed tool, or None; `release` registers the tool normally."""
        name, now = bare_name(tool), self.pin(tool)
        before = pinned.pins.get(name)
        if before is not None and before.hash == now.hash:
            return None
        if before is None and not pinned.locked:
            return None  # it is seen for the first time

        def accept() -> None:
            if self._lock is not None and pinned.locked:
                self._lock.pin(self._source, name, now)
            elif self._seen is not None:
                self._seen.accept(name, now)
            release()

        def is_settled() -> bool:
            try:
                current = self.read()
            except ConfigError:  # reported where the tool is approved; an unreadable lock file approves nothing
                return False
            pin = None if current is None else current.pins.get(name)
            if pin is None or pin.hash != now.hash:
                return False
            release()
            return True

        since = AGREED if pinned.locked else FIRST_SEEN
        return Hold(name=tool.spec.name, before=before, after=now, accept=accept, is_settled=is_settled, since=since)


def bare_name(tool: Tool) -> str:
    """Return the name of a tool within its source."""
    return tool.spec.name.partition(".")[2]


def _secret_mask(config: ExternalToolConfig, secrets: Iterable[str], folder: str) -> Callable[[str], str]:
    """Return a function that masks the source's secrets and the folder of the lock file: both differ by machine.

    Only secrets of this source's configuration are masked: other sources must not change its pins.
    """
    written = json.dumps(config.model_dump(mode="json"), ensure_ascii=False)
    own = {secret for secret in secrets if secret in written} | secrets_of(config)
    longest_first = sorted((secret for secret in own if len(secret) >= MIN_SECRET), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, MASK)
        return mask_url_secrets(text.replace(folder, ".") if folder != os.sep else text)

    return mask
