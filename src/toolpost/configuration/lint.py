"""Names in settings that match nothing, and rules that decide nothing: what somebody wrote without effect."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from toolpost.builtin.specs import COLLECTIONS, read_specs
from toolpost.contracts.config import TransportType
from toolpost.contracts.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from toolpost.builtin.providers.config import ProviderSettings
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import PolicyRule, Settings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.policy.redaction import Redactor

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
    """What has no effect; `unguarded` if it was to keep calls from a tool, and keeps none."""

    text: str
    unguarded: bool = False


def lint_settings(
    settings: Settings, registry: ToolRegistry, listings: Iterable[SourceListing], redactor: Redactor
) -> list[LintFinding]:
    """Everything that has no effect now; names of sources that cannot be asked now are given the benefit of doubt."""
    known = _Known(settings, registry, listings)
    rules = () if isinstance(settings.policy, str) else settings.policy
    found = [
        stray for number, rule in enumerate(rules, start=1) for stray in _of_rule(f"policy rule {number}", rule, known)
    ]
    found += _of_order(rules, known)
    found += _of_overrides(settings, known)
    for listing in known.sure:
        found += [*_of_source_overrides(listing, known), *_of_filter(listing), *_of_exclude(listing)]
        found += _of_nothing(listing)
    found += _of_collections(settings, known)
    found += _of_providers(settings, known)
    found += _of_descriptions(known)
    return [stray._replace(text=redactor.text(stray.text)) for stray in found]


class _Known:
    """What there is: the names in force, those from before overrides, and what may be there without being seen."""

    def __init__(self, settings: Settings, registry: ToolRegistry, listings: Iterable[SourceListing]) -> None:
        self.registry = registry
        self.specs = [*registry.specs(), *registry.hidden.values()]
        self.names = {spec.name for spec in self.specs}
        self.listings = {listing.config.name: listing for listing in listings}
        self.sure = [listing for listing in self.listings.values() if listing.sure]
        given = {config.name for config in settings.all_sources()}
        self.sources = given | {spec.source for spec in self.specs if spec.source}
        self.unseen = given - {listing.config.name for listing in self.sure}

    @cached_property
    def originals(self) -> set[str]:
        """The names that overrides go by: those from before any override."""
        listed = (name for listing in self.listings.values() for name in listing.tools)
        return {*(tool.spec.name for tool in self.registry.list()), *self.registry.hidden, *listed}

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The tools that an override gave another name, by the one they had."""
        pairs = zip(self.registry.list(), self.registry.specs(), strict=True)
        return {tool.spec.name: spec.name for tool, spec in pairs if tool.spec.name != spec.name}

    @cached_property
    def elsewhere(self) -> set[str]:
        """Names that are right although nothing has them here: built-in tools that are off, and those of agents."""
        return {*read_specs(), *(name for members in COLLECTIONS.values() for name in members)}

    def means(self, pattern: str, names: set[str]) -> bool:
        """Whether a pattern means one of these names, or one that may be there unseen."""
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            return True
        if any(fnmatchcase(name, pattern) for name in self.elsewhere):
            return True
        return self.excuses(pattern)

    def excuses(self, name: str) -> bool:
        """Whether a name may be there unseen, or is there and not offered."""
        return any(_may_reach(name, source) for source in self.unseen) or self._left_out(name)

    def _left_out(self, name: str) -> bool:
        """Whether a source has this tool and does not offer it; all of what it has may be nothing today."""
        source, _, tool = name.partition(".")
        listing = self.listings.get(source)
        return listing is not None and (tool == "*" or _is_left_out(listing, tool))

    def suggestion(self, name: str, names: Iterable[str]) -> str:
        """The end of a sentence that names the nearest: a tool, or the source that it may be of."""
        if name in self.renamed and name not in names:
            return f"; an override calls it {self.renamed[name]!r}"
        known = sorted(names)
        same = next((one for one in known if one.rpartition(".")[2] == name), None)
        near = same or nearest(name, known)
        if near is not None:
            return f"; did you mean {near!r}?"
        source, dot, _ = name.partition(".")
        if not dot or source in self.sources or _WILD.search(source):
            return ""
        return f"; there is no source {source!r} either{_meant(source, self.sources)}"


def _is_left_out(listing: SourceListing, tool: str) -> bool:
    """Whether a source was told to leave a tool of this name out, or has told why it did."""
    config = listing.config
    if any(re.fullmatch(pattern, tool) for pattern in config.tool_exclude or ()):
        return True
    if any(repr(name) in problem for name in (tool, f"{config.name}.{tool}") for problem in listing.problems):
        return True
    # What a filter leaves out needs no rule, unless it is nearly the name of one that it lets in.
    return not config.includes(tool) and nearest(tool, listing.bare) is None


def _may_reach(pattern: str, source: str) -> bool:
    """Whether a pattern could mean a tool of this source."""
    start = _WILD.split(pattern, maxsplit=1)[0]
    if start.startswith(f"{source}."):
        return True
    return start != pattern and f"{source}.".startswith(start)


def _meant(name: str, known: Iterable[str]) -> str:
    near = did_you_mean(name, sorted(known))
    return near and f"; {near}"


def _of_rule(where: str, rule: PolicyRule, known: _Known) -> Iterator[LintFinding]:
    denies, unmeant = rule.action == "deny", _unmeant(rule.tools, known)
    # A pattern may be there for tools to come; an exact name that no tool has is most likely misspelled.
    patterns = [name for name in unmeant if _WILD.search(name)]
    yield from (
        LintFinding(f"{where}: no tool matches {name!r} yet{known.suggestion(name, known.names)}") for name in patterns
    )
    told = [
        *(
            f"no tool is called {name!r}{known.suggestion(name, known.names)}"
            for name in unmeant
            if name not in patterns
        ),
        *(
            f"no source is called {name!r}{_meant(name, known.sources)}"
            for name in rule.sources or ()
            if name not in known.sources
        ),
        *_untagged(rule.tags or (), known),
    ]
    if not told and not patterns and not _can_apply(rule, known):
        told.append(f"no tool of {_listed(rule.sources or ())} is called {_listed(rule.tools)}")
    yield from (LintFinding(f"{where}: {text}", unguarded=denies) for text in told)


def _of_order(rules: Sequence[PolicyRule], known: _Known) -> Iterator[LintFinding]:
    """Rules that decide nothing, because a wider one comes first; one for all the rest may have none left today."""
    made = [rule.to_rule() for rule in rules]
    matched = [{spec.name for spec in known.specs if rule.matches(spec)} for rule in made]
    for number, (rule, names) in enumerate(zip(made, matched, strict=True)):
        if not names or any(_may_reach(pattern, source) for pattern in rule.tools for source in known.unseen):
            continue
        exact = not any(map(_WILD.search, rule.tools))
        for place in range(number):
            wider = names < matched[place] or (exact and names == matched[place])
            if wider and made[place].action != rule.action:
                said = f"rule {place + 1} decides first, and says {made[place].action}; put this one before it"
                yield LintFinding(f"policy rule {number + 1}: {said}", unguarded=rule.action == "deny")
                break


def _unmeant(patterns: Iterable[str], known: _Known) -> list[str]:
    return [pattern for pattern in patterns if pattern != "*" and not known.means(pattern, known.names)]


def _untagged(tags: Iterable[str], known: _Known) -> list[str]:
    """Tags that no tool has; while some tools cannot be seen, nobody knows."""
    if known.unseen:
        return []
    there = {tag for spec in known.specs for tag in spec.tags}
    return [f"no tool has the tag {tag!r}{_meant(tag, there)}" for tag in tags if tag not in there]


def _can_apply(rule: PolicyRule, known: _Known) -> bool:
    """Whether names and sources of a rule can hold for one tool together."""
    if not rule.sources or "*" in rule.tools or known.unseen.intersection(rule.sources):
        return True
    names = {spec.name for spec in known.specs if spec.source in rule.sources}
    return any(fnmatchcase(name, pattern) for name in names for pattern in rule.tools)


def _listed(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _of_overrides(settings: Settings, known: _Known) -> Iterator[LintFinding]:
    for name, override in settings.overrides.items():
        if name not in known.originals | known.elsewhere and (_WILD.search(name) or not known.excuses(name)):
            said = f"overrides: no tool is called {name!r}{known.suggestion(name, known.originals)}"
            yield LintFinding(said, unguarded=override.hide)


def _of_source_overrides(listing: SourceListing, known: _Known) -> Iterator[LintFinding]:
    for name, override in listing.config.overrides.items():
        if name not in listing.bare and not _is_left_out(listing, name):
            said = f"no tool of it is called {name!r}{known.suggestion(name, listing.bare)}"
            yield LintFinding(f"source {listing.config.name!r}, overrides: {said}", unguarded=override.hide)


def _of_filter(listing: SourceListing) -> Iterator[LintFinding]:
    """Filters match the names that a source uses itself; where those are others than ours, nothing can be said."""
    patterns = listing.config.tool_filter or []
    if not all(any(re.fullmatch(pattern, name) for pattern in patterns) for name in listing.bare):
        return
    for pattern in patterns:
        if not any(re.fullmatch(pattern, name) for name in listing.bare):
            left = "" if listing.bare else ", and so the source has no tools"
            yield LintFinding(f"source {listing.config.name!r}, tool_filter: no tool of it fits {pattern!r}{left}")


def _of_exclude(listing: SourceListing) -> Iterator[LintFinding]:
    for pattern in listing.config.idle_excludes():
        hint = _meant(pattern, listing.bare)
        yield LintFinding(f"source {listing.config.name!r}, tool_exclude: no tool of it fits {pattern!r}{hint}")


def _of_nothing(listing: SourceListing) -> Iterator[LintFinding]:
    config = listing.config
    if listing.tools or listing.problems or config.tool_filter:
        return
    hint = ""
    if config.tool_exclude:
        hint = "; tool_exclude may leave all of them out"
    elif config.transport is TransportType.PYTHON:
        hint = f"; mark functions of {config.connection} with @tool from toolpost"
    yield LintFinding(f"source {config.name!r} has no tools{hint}")


def _of_collections(settings: Settings, known: _Known) -> Iterator[LintFinding]:
    for collection, members in settings.collections.items():
        names = [member for member in members if not member.startswith("tag:")]
        tags = [member.removeprefix("tag:") for member in members if member.startswith("tag:")]
        told = [f"no tool is called {name!r}{known.suggestion(name, known.names)}" for name in _unmeant(names, known)]
        yield from (LintFinding(f"collection {collection!r}: {text}") for text in [*told, *_untagged(tags, known)])


def _of_providers(settings: Settings, known: _Known) -> Iterator[LintFinding]:
    tools = settings.tools
    chains = {
        "web_search": ("tools.web_search", tools.web_search.links()),
        "web_fetch": ("tools.web_fetch", tools.web_fetch.chain),
        "retrieve": ("tools.retrieval", tools.retrieval.chain),
    }
    for tool, (where, links) in chains.items():
        if tool in known.originals:
            yield from (LintFinding(f"{where}: {text}") for link in links for text in _of_provider(tool, link, known))


def _of_descriptions(known: _Known) -> Iterator[LintFinding]:
    """Tools of one's own that say nothing of themselves; what a server leaves out is for its authors to mend."""
    for spec in known.registry.specs():
        if not spec.description.strip() and _is_own(spec.name, known):
            told = "so that no model knows what it is for; give its function a docstring"
            yield LintFinding(f"tool {spec.name!r} has no description, {told}")


def _is_own(name: str, known: _Known) -> bool:
    config = known.registry.find(name).config
    return config is None or config.transport is TransportType.PYTHON


def _of_provider(tool: str, link: ProviderSettings, known: _Known) -> Iterator[str]:
    if tool == "web_search" and link.provider in _NEED_A_KEY and not link.key:
        yield f"provider {link.provider!r} has no key, so no search with it can succeed; set its api_key"
    name = link.tool or ""
    if link.provider == "mcp" and not (known.registry.has(name) or any(_may_reach(name, one) for one in known.unseen)):
        hint = known.suggestion(name, known.names) or "; set it to a tool of a source"
        yield f"provider 'mcp' calls {name!r}, and no tool is called so{hint}"
