"""Apply new settings to an open Toolbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from toolpost.builtin.specs import COLLECTIONS
from toolpost.configuration.literal_secrets import literal_secrets
from toolpost.toolbox.wiring import policy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ToolOverride
    from toolpost.runtime.router import ToolRouter
    from toolpost.toolbox.local_tools import WebProviders
    from toolpost.toolbox.source_manager import SourceManager

_APPLIED = ("policy", "approvals", "collections", "overrides", "views", "view", "webhooks")
_SERVERS = "mcp_servers"
_PROVIDERS = ("web_search", "web_fetch")


class Reload(Struct, frozen=True, kw_only=True):
    """The changes of new settings: sources, and keys that apply now (`applied`) or after a restart (`restart`).

    `failed` contains the sources that were not changed because their new settings do not work, with the reason.
    """

    added: list[str] = field(default_factory=list[str])
    replaced: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    applied: list[str] = field(default_factory=list[str])
    restart: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each kind of change."""
        for what in ("added", "replaced", "removed"):
            names: list[str] = getattr(self, what)
            if names:
                yield f"{'sources' if len(names) > 1 else 'source'} {what}: {', '.join(names)}"
        for name, reason in self.failed.items():
            yield f"source {name!r} is unchanged: {reason}"
        if self.applied:
            yield f"applied: {', '.join(self.applied)}"
        if self.restart:
            yield f"changed, and needs a restart: {', '.join(self.restart)}"


async def apply_settings(
    wanted: LoadedSettings,
    now: Settings,
    *,
    registry: ToolRegistry,
    router: ToolRouter,
    sources: SourceManager,
    providers: WebProviders,
) -> tuple[Settings, Reload]:
    """Apply new settings to the parts, and return the settings in effect and a summary of the changes.

    `now` are the settings in effect before. Settings that need a restart are not changed.
    """
    settings = wanted.settings.model_copy(update={"overrides": _overrides(wanted.settings, now)})
    applied = [key for key in _APPLIED if getattr(settings, key) != getattr(now, key)]
    restart = list(_restart_keys(wanted.settings, now))
    changed = [key for key in _PROVIDERS if getattr(settings.tools, key) != getattr(now.tools, key)]
    secrets = wanted.secrets.union(literal_secrets(settings))
    if changed:
        router.redactor.learn(secrets)  # before a provider is called
        await providers.apply(now.model_copy(update={"tools": settings.tools}))
        applied += [f"tools.{key}" for key in changed]
    registry.define_collections({**COLLECTIONS, **settings.collections})
    if "policy" in applied or "approvals" in applied:
        router.guards.policy = policy_of(settings)
    changes = await sources.apply(settings.all_sources(), overrides=settings.overrides, secrets=secrets)
    updates: dict[str, Any] = {key: getattr(settings, key) for key in (*_APPLIED, "sources")}
    updates["tools"] = now.tools.model_copy(
        update={key: getattr(settings.tools, key) for key in (_SERVERS, *_PROVIDERS)}
    )
    reload = Reload(**asdict(changes), applied=applied, restart=restart)
    return now.model_copy(update=updates), reload


def _overrides(settings: Settings, now: Settings) -> dict[str, ToolOverride]:
    """Return the overrides in effect: those of tools without a source are not changed."""
    overrides = {name: override for name, override in now.overrides.items() if _is_unsourced(name, settings, now)}
    return overrides | {
        name: override for name, override in settings.overrides.items() if not _is_unsourced(name, settings, now)
    }


def _is_unsourced(tool: str, *all_settings: Settings) -> bool:
    source = tool.partition(".")[0]
    return all(source != one.name for settings in all_settings for one in settings.all_sources())


def _restart_keys(settings: Settings, now: Settings) -> Iterator[str]:
    """Yield the keys that differ and need a restart."""
    for key in type(settings).model_fields:
        if key in (*_APPLIED, "sources", "tools"):
            continue
        if getattr(settings, key) != getattr(now, key):
            yield key
    for key in type(settings.tools).model_fields:
        if key not in (_SERVERS, *_PROVIDERS) and getattr(settings.tools, key) != getattr(now.tools, key):
            yield f"tools.{key}"
    for tool in sorted({*settings.overrides, *now.overrides}):
        if _is_unsourced(tool, settings, now) and settings.overrides.get(tool) != now.overrides.get(tool):
            yield f"overrides.{tool}"
