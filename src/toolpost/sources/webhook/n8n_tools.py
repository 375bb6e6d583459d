"""The webhooks of n8n's workflows as tools, with schemas from the configuration, from notes or from samples."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolpost.catalog.declared import closed_schema, declared_spec
from toolpost.contracts.options import WebhookTool
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.webhook.hook import Found, Hook, address_of
from toolpost.sources.webhook.naming import Named, names_of
from toolpost.sources.webhook.notes import read_note
from toolpost.sources.webhook.plain import keyed
from toolpost.sources.webhook.samples import schema_of
from toolpost.sources.webhook.triggers import AT_ONCE, Triggers
from toolpost.web.failures import presentable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.webhook.triggers import Trigger

KIND = "n8n"
_LONGEST_WORDS = 2000
_MOST_NEAR = 5
_RESPOND = "set its Respond to 'When Last Node Finishes', or calls will fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Makes tools of workflows; `tools` are what the operator says of them, by the names of the tools."""

    source: str
    base: str
    tools: Mapping[str, WebhookTool]

    def made(self, workflows: Sequence[dict[str, Any]]) -> tuple[list[Found], list[str]]:
        """The tools, and what was left out or renamed and why."""
        triggers = Triggers()
        odd: list[str] = []
        for workflow in workflows:
            _carefully(f"workflow {str(workflow.get('name'))!r}", odd, partial(triggers.read, workflow))
        found = triggers.found
        names = names_of([Named(one.workflow, one.workflow_id, one.node, one.path, one.method) for one in found])
        problems = [*triggers.problems, *odd, *_shared(found, names)]
        made: list[Found] = []
        for name, trigger in zip(names, found, strict=True):
            one = _carefully(f"tool {name!r}", problems, partial(self._tool, name, trigger, problems))
            made += [] if one is None else [one]
        problems += self._unmatched(set(names))
        return made, problems

    def _tool(self, name: str, trigger: Trigger, problems: list[str]) -> Found:
        written = self.tools.get(name)
        told = _told(trigger)
        problems += [f"tool {name!r}: {problem}" for problem in told.problems]
        tool = keyed(_described(trigger, written, told))
        if tool.output_schema is not None and trigger.mode == AT_ONCE:
            problems.append(f"tool {name!r}: it promises an output, but its Webhook node answers at once; {_RESPOND}")
        address, query = address_of(self.base, f"webhook/{trigger.path}")
        extra = {"method": trigger.method, "workflow_id": trigger.workflow_id, "workflow": trigger.workflow}
        hook = Hook(
            method=trigger.method,
            address=address,
            query=query,
            slots=trigger.slots,
            key_header=tool.idempotency_header,
            timeout_s=tool.timeout_s,
            is_n8n=True,
            workflow=trigger.workflow,
            mode=trigger.mode,
            login=trigger.login,
        )
        spec = declared_spec(self.source, name, tool=tool, kind=KIND, extra=extra, target=hook.target)
        for schema in filter(None, (spec.input_schema, spec.output_schema)):
            compile_validator(schema)  # so that one that nothing can be checked against is told now, not by each call
        return Found(name=name, spec=spec, hook=hook)

    def _unmatched(self, names: set[str]) -> Iterator[str]:
        for name in self.tools:
            if name not in names:
                near = ", ".join(get_close_matches(name, sorted(names), n=_MOST_NEAR, cutoff=0.0)) or "none"
                yield f"webhook.tools.{name} fits no active workflow; the nearest are: {near}"


# What values of the wrong kind lead to, and texts that have no bytes.
_ODD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_T = TypeVar("_T")


def _carefully(what: str, problems: list[str], do: Callable[[], _T]) -> _T | None:
    """Do something with one workflow; what is odd about it harms no other."""
    try:
        return do()
    except _ODD as error:
        problems.append(presentable(f"{what} is left out: {error}", ()))
        return None


class _Told(NamedTuple):
    """What is known of a webhook without the operator's help."""

    words: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    problems: tuple[str, ...] = ()


def _told(trigger: Trigger) -> _Told:
    """What notes and samples say; the first that says something of a thing counts."""
    notes = [read_note(text) for text in trigger.notes]
    problems = [problem for note in notes for problem in note.problems]
    asked = next((note.input_schema for note in notes if note.input_schema is not None), None)
    if asked is not None and asked.get("type", "object") != "object":
        problems.append("the input schema in its notes is not that of an object, so that it was not used")
        asked = None
    if asked is None and is_object(trigger.sample):
        asked = schema_of(trigger.sample)
    given = next((note.output_schema for note in notes if note.output_schema is not None), None)
    words = next((note.words for note in notes if note.words), "")
    return _Told(words, asked, given, tuple(problems))


def _described(trigger: Trigger, written: WebhookTool | None, told: _Told) -> WebhookTool:
    """What the operator says, and where that is silent, what the workflow says."""
    tool = WebhookTool() if written is None else written
    said = tool.model_fields_set
    own = closed_schema(tool.input_schema)
    schema = own if "input_schema" in said or told.input_schema is None else told.input_schema
    return tool.model_copy(
        update={
            "description": tool.description or _words(trigger, told.words),
            "input_schema": _with_slots(schema, trigger.slots),
            "output_schema": tool.output_schema if "output_schema" in said else told.output_schema,
        }
    )


def _words(trigger: Trigger, words: str) -> str:
    clean = "".join(char if char.isprintable() or char == "\n" else " " for char in words)[:_LONGEST_WORDS]
    told = clean or f"Run the n8n workflow {trigger.workflow!r}."
    if trigger.mode == AT_ONCE:
        told = f"{told}\n\nIt answers at once, before the workflow is done, and not with its result."
    return told


def _with_slots(schema: JsonSchema, slots: tuple[str, ...]) -> JsonSchema:
    """The schema with the arguments that stand in the path, which nobody can leave out."""
    if not slots:
        return schema
    properties = schema.get("properties")
    known: dict[str, Any] = properties if is_object(properties) else {}
    named: dict[str, Any] = {slot: known.get(slot, {"type": ["string", "number"]}) for slot in slots}
    required = schema.get("required")
    given = [name for name in required if isinstance(name, str)] if is_array(required) else []
    asked = [*dict.fromkeys([*given, *slots])]
    return {**schema, "type": "object", "properties": {**known, **named}, "required": asked}


def _shared(found: Sequence[Trigger], names: Sequence[str]) -> Iterator[str]:
    """What is said of different workflows that have one name."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for trigger, name in zip(found, names, strict=True):
        by_name.setdefault(trigger.workflow, {}).setdefault(trigger.workflow_id, []).append(name)
    for workflow, ids in by_name.items():
        if len(ids) > 1:
            tools = ", ".join(name for several in ids.values() for name in several)
            yield f"{len(ids)} workflows are named {workflow!r}, so that their tools are named by their paths: {tools}"
