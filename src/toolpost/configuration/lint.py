"""Lint settings: report names that match nothing, shadowed rules, and other entries without effect."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from toolpost.builtin.specs import COLLECTIONS, read_specs
from toolpost.contracts.nearest_names import did_you_mean, nearest
from toolpost.sources.registry import describe_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from toolpost.builtin.providers.config import ProviderSettings
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import PolicyRule, Settings
    from toolpost.contracts.config import ExternalToolConfig

_WILD = re.compile(r"[*?\[]")
_NEED_A_KEY = frozenset({"brave", "tavily", "google", "bing", "jina"})


class SourceListing(NamedTuple):
    """The tools and problems of one source; `sure` if no tool is hidden from users without an account."""

    config: ExternalToolConfig
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    sure: bool

    @property
    def bare(self) -> tuple[str, ...]:
        """The names of the tools within the source."""
        return tuple(name.partition(".")[2] for name in self.tools)


class LintFinding(NamedTuple):
    """One entry without effect; `unguarded` if the entry should block calls and blocks none."""

    text: str
    unguarded: bool = False


def lint_settings(
    settings: Settings, registry: ToolRegistry, listings: Iterable[SourceListing], redact: Callable[[str], str]
) -> list[LintFinding]:
    """Report every entry without effect, redacted; names that a source which is down may have are not reported."""
    names = _KnownNames(settings, registry, listings)
    rules = () if isinstance(settings.policy, str) else settings.policy
    findings = [
        finding
        for number, rule in enumerate(rules, start=1)
        for finding in _lint_rule(f"policy rule {number}", rule, names)
    ]
    findings += _lint_order(rules, names)
    findings += _lint_overrides(settings, names)
    for listing in names.sure:
        findings += [*_lint_source_overrides(listing, names), *_lint_filter(listing), *_lint_exclude(listing)]
        findings += _lint_empty_source(listing)
    for collection, members in settings.collections.items():
        findings += [LintFinding(f"collection {collection!r}: {text}") for text in _unknown_members(members, names)]
    findings += _lint_views(settings, names)
    findings += _lint_providers(settings, names)
    findings += _lint_descriptions(names)
    findings += _lint_roles(settings)
    return [finding._replace(text=redact(finding.text)) for finding in findings]


class _KnownNames:
    """The names of tools and sources: current, before overrides, and those of sources that are not listed."""

    def __init__(self, settings: Settings, registry: ToolRegistry, listings: Iterable[SourceListing]) -> None:
        self.registry = registry
        self.specs = [*registry.specs(), *registry.hidden.values()]
        self.names = {spec.name for spec in self.specs}
        self.listings = {listing.config.name: listing for listing in listings}
        self.sure = [listing for listing in self.listings.values() if listing.sure]
        source_names = {config.name for config in settings.all_sources()}
        self.sources = source_names | {spec.source for spec in self.specs if spec.source}
        self.unseen = source_names - {listing.config.name for listing in self.sure}

    @cached_property
    def originals(self) -> set[str]:
        """The names of tools before any override, which the keys of `overrides` refer to."""
        listed = (name for listing in self.listings.values() for name in listing.tools)
        return {*(tool.spec.name for tool in self.registry.list()), *self.registry.hidden, *listed}

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The new names of tools that an override renames, by their old names."""
        pairs = zip(self.registry.list(), self.registry.specs(), strict=True)
        return {tool.spec.name: spec.name for tool, spec in pairs if tool.spec.name != spec.name}

    @cached_property
    def not_loaded(self) -> set[str]:
        """Valid names that are not loaded: built-in tools that are off, and tools of agents."""
        return {*read_specs(), *(name for members in COLLECTIONS.values() for name in members)}

    def matches(self, pattern: str, names: set[str]) -> bool:
        """Return whether a pattern matches one of these names, or one that may exist unseen."""
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            return True
        if any(fnmatchcase(name, pattern) for name in self.not_loaded):
            return True
        return self.may_exist(pattern)

    def may_exist(self, name: str) -> bool:
        """Return whether a name may belong to a source that is not listed, or to a tool that its source excludes."""
        return any(_may_reach(name, source) for source in self.unseen) or self._is_excluded(name)

    def _is_excluded(self, name: str) -> bool:
        """Return whether a source excludes this tool; `source.*` may match nothing today."""
        source, _, tool = name.partition(".")
        listing = self.listings.get(source)
        return listing is not None and (tool == "*" or _is_excluded_by(listing, tool))

    def suggestion(self, name: str, names: Iterable[str]) -> str:
        """Return the end of a message: the nearest tool, or the nearest source."""
        if name in self.renamed and name not in names:
            return f"; an override calls it {self.renamed[name]!r}"
        candidates = sorted(names)
        same = next((one for one in candidates if one.rpartition(".")[2] == name), None)
        near = same or nearest(name, candidates)
        if near is not None:
            return f"; did you mean {near!r}?"
        source, dot, _ = name.partition(".")
        if not dot or source in self.sources or _WILD.search(source):
            return ""
        return f"; there is no source {source!r} either{_suggest(source, self.sources)}"


def _is_excluded_by(listing: SourceListing, tool: str) -> bool:
    """Return whether a source excludes a tool by its configuration, or has reported why it skipped the tool."""
    config = listing.config
    if any(re.fullmatch(pattern, tool) for pattern in config.tool_exclude or ()):
        return True
    if any(repr(name) in problem for name in (tool, f"{config.name}.{tool}") for problem in listing.problems):
        return True
    # A tool that a filter excludes needs no rule, unless its name nearly equals an included one.
    return not config.includes(tool) and nearest(tool, listing.bare) is None


def _may_reach(pattern: str, source: str) -> bool:
    """Return whether a pattern could match a tool of this source."""
    start = _WILD.split(pattern, maxsplit=1)[0]
    if start.startswith(f"{source}."):
        return True
    return start != pattern and f"{source}.".startswith(start)


def _suggest(name: str, known: Iterable[str]) -> str:
    near = did_you_mean(name, sorted(known))
    return near and f"; {near}"


def _lint_rule(where: str, rule: PolicyRule, known: _KnownNames) -> Iterator[LintFinding]:
    denies, unmatched = rule.action == "deny", _find_unmatched(rule.tools, known)
    # A pattern may be for future tools; an exact name without a tool is most likely misspelled.
    patterns = [name for name in unmatched if _WILD.search(name)]
    yield from (
        LintFinding(f"{where}: no tool matches {name!r} yet{known.suggestion(name, known.names)}") for name in patterns
    )
    messages = [
        *(
            f"no tool is called {name!r}{known.suggestion(name, known.names)}"
            for name in unmatched
            if name not in patterns
        ),
        *(
            f"no source is called {name!r}{_suggest(name, known.sources)}"
            for name in rule.sources or ()
            if name not in known.sources
        ),
        *_unknown_tags(rule.tags or (), known),
    ]
    if not messages and not patterns and not _can_apply(rule, known):
        messages.append(f"no tool of {_quote(rule.sources or ())} is called {_quote(rule.tools)}")
    yield from (LintFinding(f"{where}: {text}", unguarded=denies) for text in messages)


def _lint_order(rules: Sequence[PolicyRule], known: _KnownNames) -> Iterator[LintFinding]:
    """Report rules that an earlier, broader rule with another action shadows."""
    policy_rules = [rule.to_rule() for rule in rules]
    matched = [{spec.name for spec in known.specs if rule.matches(spec)} for rule in policy_rules]
    for number, (rule, names) in enumerate(zip(policy_rules, matched, strict=True)):
        if not names or any(_may_reach(pattern, source) for pattern in rule.tools for source in known.unseen):
            continue
        exact = not any(map(_WILD.search, rule.tools))
        for place in range(number):
            wider = names < matched[place] or (exact and names == matched[place])
            if wider and policy_rules[place].action != rule.action:
                message = f"rule {place + 1} decides first with {policy_rules[place].action}; put this one before it"
                yield LintFinding(f"policy rule {number + 1}: {message}", unguarded=rule.action == "deny")
                break


def _find_unmatched(patterns: Iterable[str], known: _KnownNames) -> list[str]:
    return [pattern for pattern in patterns if pattern != "*" and not known.matches(pattern, known.names)]


def _unknown_tags(tags: Iterable[str], known: _KnownNames) -> list[str]:
    """Report tags that no tool has, unless the tools of an unlisted source may have them."""
    if known.unseen:
        return []
    there = {tag for spec in known.specs for tag in spec.tags}
    return [f"no tool has the tag {tag!r}{_suggest(tag, there)}" for tag in tags if tag not in there]


def _can_apply(rule: PolicyRule, known: _KnownNames) -> bool:
    """Return whether one tool can match both the names and the sources of a rule."""
    if not rule.sources or "*" in rule.tools or known.unseen.intersection(rule.sources):
        return True
    names = {spec.name for spec in known.specs if spec.source in rule.sources}
    return any(fnmatchcase(name, pattern) for name in names for pattern in rule.tools)


def _quote(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _lint_overrides(settings: Settings, known: _KnownNames) -> Iterator[LintFinding]:
    for name, override in settings.overrides.items():
        if name not in known.originals | known.not_loaded and (_WILD.search(name) or not known.may_exist(name)):
            message = f"overrides: no tool is called {name!r}{known.suggestion(name, known.originals)}"
            yield LintFinding(message, unguarded=override.hide)


def _lint_source_overrides(listing: SourceListing, known: _KnownNames) -> Iterator[LintFinding]:
    for name, override in listing.config.overrides.items():
        if name not in listing.bare and not _is_excluded_by(listing, name):
            message = f"none of its tools is called {name!r}{known.suggestion(name, listing.bare)}"
            yield LintFinding(f"source {listing.config.name!r}, overrides: {message}", unguarded=override.hide)


def _lint_filter(listing: SourceListing) -> Iterator[LintFinding]:
    """Report patterns without a match; skipped if the names that the filter matches differ from ours."""
    patterns = listing.config.tool_filter or []
    if not all(any(re.fullmatch(pattern, name) for pattern in patterns) for name in listing.bare):
        return
    for pattern in patterns:
        if not any(re.fullmatch(pattern, name) for name in listing.bare):
            left = "" if listing.bare else ", and so the source has no tools"
            yield LintFinding(
                f"source {listing.config.name!r}, tool_filter: none of its tools matches {pattern!r}{left}"
            )


def _lint_exclude(listing: SourceListing) -> Iterator[LintFinding]:
    for pattern in listing.config.idle_excludes():
        hint = _suggest(pattern, listing.bare)
        yield LintFinding(f"source {listing.config.name!r}, tool_exclude: none of its tools matches {pattern!r}{hint}")


def _lint_empty_source(listing: SourceListing) -> Iterator[LintFinding]:
    config = listing.config
    if listing.tools or listing.problems or config.tool_filter:
        return
    hint = ""
    if config.tool_exclude:
        hint = "; tool_exclude may exclude all of them"
    elif advice := describe_transport(config.transport).advice_without_tools(config):
        hint = f"; {advice}"
    yield LintFinding(f"source {config.name!r} has no tools{hint}")


def _unknown_members(members: Iterable[str], known: _KnownNames) -> list[str]:
    """Report the members of a set of tools, names or `tag:x`, that match no tool."""
    entries = list(members)
    names = [member for member in entries if not member.startswith("tag:")]
    tags = [member.removeprefix("tag:") for member in entries if member.startswith("tag:")]
    messages = [
        f"no tool is called {name!r}{known.suggestion(name, known.names)}" for name in _find_unmatched(names, known)
    ]
    return [*messages, *_unknown_tags(tags, known)]


def _lint_views(settings: Settings, known: _KnownNames) -> Iterator[LintFinding]:
    there = {*COLLECTIONS, *settings.collections}
    for name, view in settings.views.items():
        messages = [
            f"no source is called {source!r}{_suggest(source, known.sources)}"
            for source in view.sources or ()
            if source not in known.sources
        ]
        if view.collection is not None and view.collection not in there:
            messages.append(f"no collection is called {view.collection!r}{_suggest(view.collection, there)}")
        messages += [*_unknown_tags(view.tags or (), known), *_unknown_members(view.tools or (), known)]
        yield from (LintFinding(f"view {name!r}: {text}") for text in messages)


def _lint_providers(settings: Settings, known: _KnownNames) -> Iterator[LintFinding]:
    tools = settings.tools
    chains = {
        "web_search": ("tools.web_search", tools.web_search.providers()),
        "web_fetch": ("tools.web_fetch", tools.web_fetch.chain),
        "retrieve": ("tools.retrieval", tools.retrieval.chain),
    }
    for tool, (where, chain) in chains.items():
        if tool in known.originals:
            yield from (LintFinding(f"{where}: {text}") for one in chain for text in _lint_provider(tool, one, known))


def _lint_descriptions(known: _KnownNames) -> Iterator[LintFinding]:
    """Report Python tools without a description; those of servers are for the authors of the servers to describe."""
    for spec in known.registry.specs():
        if not spec.description.strip() and known.registry.find(spec.name).traits.is_own_code:
            why = "so a model cannot know its purpose; give its function a docstring"
            yield LintFinding(f"tool {spec.name!r} has no description, {why}")


def _lint_roles(settings: Settings) -> Iterator[LintFinding]:
    """Report roles that let an agent approve, and roles with a scope `answer` that has no effect."""
    oidc = settings.server.oidc
    if oidc is None:
        return
    for name, role in oidc.roles.items():
        where = f"server.oidc.roles.{name}"
        if {"call", "answer"} <= set(role.scopes):
            why = "an agent with such a token could approve its own calls; give agents and approvers separate roles"
            yield LintFinding(f"{where} has both scopes call and answer: {why}")
        if "answer" in role.scopes and not oidc.person_clients:
            why = "server.oidc.person_clients names no client of approvers, so tokens never answer"
            yield LintFinding(f"{where} has the scope answer without effect: {why}")


def _lint_provider(tool: str, provider: ProviderSettings, known: _KnownNames) -> Iterator[str]:
    if tool == "web_search" and provider.provider in _NEED_A_KEY and not provider.key:
        yield f"provider {provider.provider!r} has no key, so no search with it can succeed; set its api_key"
    name = provider.tool or ""
    if provider.provider == "mcp" and not (
        known.registry.has(name) or any(_may_reach(name, one) for one in known.unseen)
    ):
        hint = known.suggestion(name, known.names) or "; set it to a tool of a source"
        yield f"provider 'mcp' calls {name!r}, and there is no such tool{hint}"
