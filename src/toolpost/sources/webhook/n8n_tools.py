"""Build tools from the workflows of an n8n."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.spec import JsonSchema
from toolpost.http.response_errors import sanitize
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.webhook.hooks import Hook, HookDefinition, resolve_url, with_keyed_replay
from toolpost.sources.webhook.n8n_triggers import RESPOND_IMMEDIATELY, TriggerReader, WebhookTrigger, tool_names
from toolpost.sources.webhook.options import WebhookTool
from toolpost.sources.webhook.workflow_notes import WorkflowNote, infer_schema, parse_note

_KIND = "n8n"
_MAX_DESCRIPTION_CHARS = 2000
_MAX_SUGGESTIONS = 5
_RESPOND_HINT = "set its Respond to 'When Last Node Finishes', or calls will fail"
# Exceptions of values of unexpected types, and of strings that cannot be encoded.
_MALFORMED_DATA = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_T = TypeVar("_T")


class N8nToolBuilder(Struct, frozen=True, kw_only=True):
    """Builder of tools from workflows; `tools` are the configured options, by tool name."""

    source: str
    base: str
    tools: Mapping[str, WebhookTool]

    def build(self, workflows: Sequence[dict[str, Any]]) -> tuple[list[HookDefinition], list[str]]:
        """Return the tools, and the problems of workflows that were skipped or renamed."""
        reader = TriggerReader()
        malformed: list[str] = []
        for workflow in workflows:
            _attempt(f"workflow {str(workflow.get('name'))!r}", malformed, partial(reader.add, workflow))
        triggers = reader.triggers
        names = tool_names(triggers)
        problems = [*reader.problems, *malformed, *_duplicate_name_problems(triggers, names)]
        definitions: list[HookDefinition] = []
        for name, trigger in zip(names, triggers, strict=True):
            definition = _attempt(f"tool {name!r}", problems, partial(self._definition, name, trigger, problems))
            definitions += [] if definition is None else [definition]
        problems += self._unmatched_problems(set(names))
        return definitions, problems

    def _definition(self, name: str, trigger: WebhookTrigger, problems: list[str]) -> HookDefinition:
        configured = self.tools.get(name)
        docs = _read_docs(trigger)
        problems += [f"tool {name!r}: {problem}" for problem in docs.problems]
        tool = with_keyed_replay(_with_docs(trigger, configured, docs))
        if tool.output_schema is not None and trigger.mode == RESPOND_IMMEDIATELY:
            problem = "it declares an output, but its Webhook node responds immediately"
            problems.append(f"tool {name!r}: {problem}; {_RESPOND_HINT}")
        address, query = resolve_url(self.base, f"webhook/{trigger.path}")
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
        spec = declared_spec(self.source, name, tool=tool, kind=_KIND, extra=extra, target=hook.target)
        for schema in filter(None, (spec.input_schema, spec.output_schema)):
            compile_validator(schema)  # an invalid schema is a problem of discovery, not of each call
        return HookDefinition(name=name, spec=spec, hook=hook)

    def _unmatched_problems(self, names: set[str]) -> Iterator[str]:
        for name in self.tools:
            if name not in names:
                similar = get_close_matches(name, sorted(names), n=_MAX_SUGGESTIONS, cutoff=0.0)
                yield f"options.tools.{name} matches no active workflow; similar names: {', '.join(similar) or 'none'}"


def _attempt(what: str, problems: list[str], action: Callable[[], _T]) -> _T | None:
    """Run `action`; record an error from malformed data as a problem, so that other workflows stay usable."""
    try:
        return action()
    except _MALFORMED_DATA as error:
        problems.append(sanitize(f"{what} is skipped: {error}", ()))
        return None


def _read_docs(trigger: WebhookTrigger) -> WorkflowNote:
    """Read the notes and the pinned sample; the first value of each kind is used."""
    notes = [parse_note(text) for text in trigger.notes]
    problems = [problem for note in notes for problem in note.problems]
    input_schema = next((note.input_schema for note in notes if note.input_schema is not None), None)
    if input_schema is not None and input_schema.get("type", "object") != "object":
        problems.append("the input schema in its notes was not used, because it is not that of an object")
        input_schema = None
    if input_schema is None and is_object(trigger.sample):
        input_schema = infer_schema(trigger.sample)
    output_schema = next((note.output_schema for note in notes if note.output_schema is not None), None)
    description = next((note.description for note in notes if note.description), "")
    return WorkflowNote(description, input_schema, output_schema, tuple(problems))


def _with_docs(trigger: WebhookTrigger, configured: WebhookTool | None, docs: WorkflowNote) -> WebhookTool:
    """Return the configured options, completed from the workflow's own description and schemas."""
    tool = WebhookTool() if configured is None else configured
    configured_fields = tool.model_fields_set
    own = closed_schema(tool.input_schema)
    schema = own if "input_schema" in configured_fields or docs.input_schema is None else docs.input_schema
    return tool.model_copy(
        update={
            "description": tool.description or _description(trigger, docs.description),
            "input_schema": _with_slots(schema, trigger.slots),
            "output_schema": tool.output_schema if "output_schema" in configured_fields else docs.output_schema,
        }
    )


def _description(trigger: WebhookTrigger, note: str) -> str:
    clean = "".join(char if char.isprintable() or char == "\n" else " " for char in note)
    text = clean[:_MAX_DESCRIPTION_CHARS] or f"Run the n8n workflow {trigger.workflow!r}."
    if trigger.mode == RESPOND_IMMEDIATELY:
        text = f"{text}\n\nIt responds immediately, before the workflow has ended, and not with the result."
    return text


def _with_slots(schema: JsonSchema, slots: tuple[str, ...]) -> JsonSchema:
    if not slots:
        return schema
    properties = as_object(schema.get("properties"))
    scalar = {"anyOf": [{"type": "string"}, {"type": "number"}]}
    named: dict[str, Any] = {slot: properties.get(slot, scalar) for slot in slots}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if is_array(required) else []
    every = [*dict.fromkeys([*names, *slots])]
    return {**schema, "type": "object", "properties": {**properties, **named}, "required": every}


def _duplicate_name_problems(triggers: Sequence[WebhookTrigger], names: Sequence[str]) -> Iterator[str]:
    by_name: dict[str, dict[str, list[str]]] = {}
    for trigger, name in zip(triggers, names, strict=True):
        by_name.setdefault(trigger.workflow, {}).setdefault(trigger.workflow_id, []).append(name)
    for workflow, ids in by_name.items():
        if len(ids) > 1:
            tools = ", ".join(name for several in ids.values() for name in several)
            yield f"{len(ids)} workflows are named {workflow!r}; their tools are named by their paths: {tools}"
