"""JSON documents of tools: the summary for lists, the whole tool, and the verdict of the policy about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from toolpost.catalog.specs import Claims, effects_from_claims, read_claims
from toolpost.catalog.threads import run_in_thread
from toolpost.catalog.token_counts import TokenCounter, find_counter
from toolpost.gateway.mcp.definitions import tool_definition
from toolpost.gateway.mcp.names import FLAT_PAGE, UI_SCHEME
from toolpost.policy.call_summary import target_summary
from toolpost.schema.json_values import is_object
from toolpost.toolbox.source_tools import bare_name

if TYPE_CHECKING:
    from toolpost.catalog.entry import Entry
    from toolpost.catalog.lock import Hold
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.rules import Action, Verdict
    from toolpost.toolbox.box import Toolbox

_LONGEST_DESCRIPTION = 200
SaidBy = Literal["code", "operator", "protocol", "source", "unknown"]


class ToolDocuments:
    """Documents of the tools of a Toolbox. Summaries are cached until the tool or the policy changes."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._policy = box.router.policy
        self._summaries: dict[str, tuple[Entry, dict[str, Any]]] = {}
        self._counter: TokenCounter | None = None
        self._tokens: dict[str, tuple[Entry, int]] = {}

    def verdict(self, entry: Entry) -> Verdict:
        """Return the verdict about all calls of a tool; a preview may change it for one call."""
        verdict = self._box.router.policy.verdict(entry.spec)
        hold = self._hold_of(entry)
        return verdict if hold is None else verdict.with_question(hold.question())

    def summary(self, entry: Entry) -> dict[str, Any]:
        """Return the properties of a tool that a list shows and filters by."""
        if self._policy is not self._box.router.policy:
            self._policy = self._box.router.policy
            self._summaries.clear()
        spec = entry.spec
        cached = self._summaries.get(spec.name)
        if cached is not None and cached[0] is entry:
            return cached[1]
        summary = {
            "name": spec.name,
            "description": _shortened(spec.description),
            "source": spec.source,
            "category": spec.category.value,
            "side_effects": spec.side_effects,
            "destructive": spec.safety.destructive,
            "tags": list(spec.tags),
            "deprecated": spec.deprecated,
            "held": entry.unaccepted is not None,
            "verdict": self._action(entry),
        }
        self._summaries[spec.name] = (entry, summary)
        return summary

    def prune(self, names: set[str]) -> None:
        """Drop the cached facts of other tools than these."""
        if len(self._summaries) > len(names):
            self._summaries = {name: cached for name, cached in self._summaries.items() if name in names}
        if len(self._tokens) > len(names):
            self._tokens = {name: cached for name, cached in self._tokens.items() if name in names}

    def document(self, entry: Entry) -> dict[str, Any]:
        """Return a tool with everything that its listing states."""
        spec, verdict, change = entry.spec, self.verdict(entry), entry.unaccepted
        return {
            **spec.to_dict(),
            "warning": None if change is None else f"definition changed: {change.reason}",
            "target": target_summary(spec, self._box.redactor.text) or None,
            "origin": entry.content_origin or None,
            "trust": None if not entry.content_origin else "trusted" if entry.is_trusted else "untrusted",
            "said_by": said_by(entry),
            "verdict": verdict_document(verdict),
            "held": None if change is None else self._held(entry, change),
            "annotations": spec.extra.get("annotations") or None,
            "outputs": entry.output_check,
            "validate_inputs": spec.validate_inputs,
            "model_name": self._box.registry.model_name(spec.name),
            "app": app_of(spec),
        }

    async def details(self, entry: Entry) -> dict[str, Any]:
        """Return the parts of a tool that a list omits: its definitions, its pin and its calls since the start."""
        (definition,) = self._box.registry.to_llm_tools([entry.spec.name])
        counter, counts = await self.counter(), entry.counts
        return {
            **self._pin(entry),
            "definitions": {
                "openai": definition.to_openai(),
                "anthropic": definition.to_anthropic(),
                "mcp": tool_definition(definition.name, entry.spec),
                "tokens": self.tokens(entry, counter),
                "tokenizer": counter.tokenizer,
            },
            "stats": {
                "count": counts.count,
                "failures": counts.failures,
                "average_ms": round(counts.total_ms / counts.count, 3) if counts.count else 0.0,
                "schema_violations": counts.schema_violations,
            },
        }

    def tokens(self, entry: Entry, counter: TokenCounter) -> int:
        """Return the tokens of the definition of a tool; they are cached until the tool changes."""
        cached = self._tokens.get(entry.spec.name)
        if cached is None or cached[0] is not entry:
            (definition,) = self._box.registry.to_llm_tools([entry.spec.name])
            cached = self._tokens[entry.spec.name] = (entry, counter.count(definition))
        return cached[1]

    async def counter(self) -> TokenCounter:
        """Return the counter of tokens; it is read once, in a thread."""
        counter = self._counter
        if counter is None:
            counter = self._counter = cast("TokenCounter", await run_in_thread(find_counter))
        return counter

    def _action(self, entry: Entry) -> Action:
        action: Action = self._policy.verdict(entry.spec).action
        return "ask" if action == "allow" and self._hold_of(entry) is not None else action

    def _hold_of(self, entry: Entry) -> Hold | None:
        return entry.unaccepted if self._box.router.policy.blocks_changes else entry.hold

    def _held(self, entry: Entry, change: Hold) -> dict[str, Any]:
        payload = change.payload()
        facts = {key: payload[key] for key in ("reason", "hash", "new", "changes")}
        return {**facts, "blocks": self._hold_of(entry) is not None}

    def _pin(self, entry: Entry) -> dict[str, Any]:
        """Return the hash of the accepted definition, in the lock file or as it was first seen, and its time."""
        managed = self._box.sources.index.by_name.get(entry.original.source)
        pins = None if managed is None else managed.tools.pins
        pinned = None if pins is None else pins.read()
        pin = None if pinned is None else pinned.pins.get(bare_name(entry.tool))
        if pinned is None or pin is None:
            return {"pinned_hash": None, "pinned_at": None}
        return {"pinned_hash": pin.hash, "pinned_at": pinned.written_at}


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON data; `rule` is the number of the rule that decides, or 0 for the template."""
    approvals, question = verdict.approvals, verdict.question
    return {
        "action": verdict.action,
        "reason": verdict.reason if question is None else question.prompt,
        "rule": verdict.rule,
        "answerers": None if approvals.answerers is None else list(approvals.answerers),
        "four_eyes": bool(approvals.four_eyes),
    }


def said_by(entry: Entry) -> SaidBy:
    """Return who declared the effects of a tool.

    `code` is the operator's own code, `operator` the configuration, `protocol` a standard such as the HTTP method,
    `source` the annotations of the source, if they affect the verdict. `unknown`: no trusted origin declares them.
    """
    spec, original = entry.spec, entry.original
    if (spec.side_effects, spec.replay, spec.safety) != (original.side_effects, original.replay, original.safety):
        return "operator"
    config = entry.config
    if config is None or entry.traits.is_own_code:
        return "code"
    if original.extra.get("source") != "mcp":
        return "operator" if entry.traits.declares_schemas else "protocol"
    claims = read_claims(original)
    claimed, silent = (effects_from_claims(one, trusted=config.trust, remote=True) for one in (claims, Claims()))
    return "unknown" if claimed == silent else "source"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 1]}…"


def app_of(spec: ToolSpec) -> str | None:
    """Return the URI of the page that a tool names, or None."""
    meta: Any = spec.extra.get("meta")
    if not is_object(meta):
        return None
    ui: Any = meta.get("ui")
    uri: Any = ui.get("resourceUri") if is_object(ui) else None
    uri = uri or meta.get(FLAT_PAGE)
    return uri if isinstance(uri, str) and uri.startswith(UI_SCHEME) else None
