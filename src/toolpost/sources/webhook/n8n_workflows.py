"""Build tools from the Webhook nodes of n8n workflows."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.config import WebhookTool
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.webhook.hooks import Hook, HookDefinition, resolve_url, with_keyed_replay
from toolpost.sources.webhook.n8n_notes import infer_schema, parse_note
from toolpost.web.failures import sanitize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema

_KIND = "n8n"
_MAX_DESCRIPTION_CHARS = 2000
_MAX_SUGGESTIONS = 5
_RESPOND_HINT = "set its Respond to 'When Last Node Finishes', or calls will fail"
# What values of unexpected types raise, and strings that cannot be encoded.
_MALFORMED_DATA = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_T = TypeVar("_T")
_WEBHOOK_NODE = "n8n-nodes-base.webhook"
RESPOND_IMMEDIATELY = "onReceived"
_MCP_NODE = "@n8n/n8n-nodes-langchain.mcpTrigger"
_STICKY_NOTE = "n8n-nodes-base.stickyNote"
_OTHER_TRIGGERS = {
    "n8n-nodes-base.formTrigger": "a form, which people fill in",
    "@n8n/n8n-nodes-langchain.chatTrigger": "a chat, which keeps a session",
}
_METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE", "HEAD")
_DOT_SEGMENTS = frozenset({".", ".."})
_NON_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_MAX_SLUG_CHARS = 200
_HASH_CHARS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class N8nToolBuilder:
    """Builds tools from workflows; `tools` are the configured options, by tool name."""

    source: str
    base: str
    tools: Mapping[str, WebhookTool]

    def build(self, workflows: Sequence[dict[str, Any]]) -> tuple[list[HookDefinition], list[str]]:
        """Return the tools, and the problems of workflows that were left out or renamed."""
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
            problem = "it promises an output, but its Webhook node answers at once"
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
                yield f"webhook.tools.{name} fits no active workflow; the nearest are: {', '.join(similar) or 'none'}"


def _attempt(what: str, problems: list[str], action: Callable[[], _T]) -> _T | None:
    """Run `action`; record an error from malformed data as a problem, so that other workflows stay usable."""
    try:
        return action()
    except _MALFORMED_DATA as error:
        problems.append(sanitize(f"{what} is left out: {error}", ()))
        return None


class _WorkflowDocs(NamedTuple):
    """Description and schemas read from a workflow's notes and samples."""

    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    problems: tuple[str, ...] = ()


def _read_docs(trigger: WebhookTrigger) -> _WorkflowDocs:
    """Read the notes and the pinned sample; the first value of each kind is used."""
    notes = [parse_note(text) for text in trigger.notes]
    problems = [problem for note in notes for problem in note.problems]
    input_schema = next((note.input_schema for note in notes if note.input_schema is not None), None)
    if input_schema is not None and input_schema.get("type", "object") != "object":
        problems.append("the input schema in its notes is not that of an object, so that it was not used")
        input_schema = None
    if input_schema is None and is_object(trigger.sample):
        input_schema = infer_schema(trigger.sample)
    output_schema = next((note.output_schema for note in notes if note.output_schema is not None), None)
    description = next((note.description for note in notes if note.description), "")
    return _WorkflowDocs(description, input_schema, output_schema, tuple(problems))


def _with_docs(trigger: WebhookTrigger, configured: WebhookTool | None, docs: _WorkflowDocs) -> WebhookTool:
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
        text = f"{text}\n\nIt answers at once, before the workflow is done, and not with its result."
    return text


def _with_slots(schema: JsonSchema, slots: tuple[str, ...]) -> JsonSchema:
    """Add the path parameters to the schema as required properties."""
    if not slots:
        return schema
    properties = schema.get("properties")
    known: dict[str, Any] = properties if is_object(properties) else {}
    named: dict[str, Any] = {slot: known.get(slot, {"type": ["string", "number"]}) for slot in slots}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if is_array(required) else []
    every = [*dict.fromkeys([*names, *slots])]
    return {**schema, "type": "object", "properties": {**known, **named}, "required": every}


def _duplicate_name_problems(triggers: Sequence[WebhookTrigger], names: Sequence[str]) -> Iterator[str]:
    """Report workflows that share a name."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for trigger, name in zip(triggers, names, strict=True):
        by_name.setdefault(trigger.workflow, {}).setdefault(trigger.workflow_id, []).append(name)
    for workflow, ids in by_name.items():
        if len(ids) > 1:
            tools = ", ".join(name for several in ids.values() for name in several)
            yield f"{len(ids)} workflows are named {workflow!r}, so that their tools are named by their paths: {tools}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTrigger:
    """A Webhook node with one method: its URL path, response mode, authentication, notes and pinned sample."""

    workflow: str
    workflow_id: str
    node: str
    method: str
    path: str
    slots: tuple[str, ...] = ()
    mode: str = RESPOND_IMMEDIATELY
    login: str = ""
    notes: tuple[str, ...] = ()
    sample: Any = None


@dataclass(slots=True)
class TriggerReader:
    """Collects the Webhook nodes of workflows, and the problems of nodes that were left out."""

    triggers: list[WebhookTrigger] = field(default_factory=list["WebhookTrigger"])
    problems: list[str] = field(default_factory=list[str])

    def add(self, workflow: dict[str, Any]) -> None:
        """Add the triggers of one workflow; inactive and archived ones have none."""
        if workflow.get("active") is False or workflow.get("isArchived") is True:
            return
        name = sanitize(str(workflow.get("name") or ""), ())
        version = _active_version(workflow)
        nodes = version.get("nodes")
        if not is_array(nodes):
            self.problems.append(f"workflow {name!r} has no nodes that can be read")
            return
        enabled = [node for node in nodes if is_object(node) and node.get("disabled") is not True]
        for node in enabled:
            if node.get("type") == _WEBHOOK_NODE:
                self._add_webhook(workflow, name, node, _notes(workflow, version, node, enabled))
            else:
                self.problems += _other_trigger_problems(name, node)

    def _add_webhook(self, workflow: dict[str, Any], name: str, node: dict[str, Any], notes: tuple[str, ...]) -> None:
        given = node.get("parameters")
        parameters = given if is_object(given) else {}
        methods, path = _methods(parameters), _path(workflow, node, parameters)
        if not methods or path is None:
            reason = "its path or method is worked out by n8n" if path is None else "its method cannot be called"
            self.problems.append(f"workflow {name!r} has a webhook that is left out: {reason}")
            return
        self.triggers += [
            WebhookTrigger(
                workflow=name,
                workflow_id=sanitize(str(workflow.get("id") or ""), ()),
                node=sanitize(str(node.get("name") or ""), ()),
                method=method,
                path=path,
                slots=tuple(step[1:] for step in path.split("/") if step.startswith(":") and step[1:]),
                mode=str(parameters.get("responseMode") or RESPOND_IMMEDIATELY),
                login=_login(parameters),
                notes=notes,
                sample=_pinned_sample(workflow, node, method),
            )
            for method in methods
        ]


def _active_version(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the published version; the workflow itself may hold an unpublished draft."""
    version = workflow.get("activeVersion")
    return version if is_object(version) and is_array(version.get("nodes")) else workflow


def _other_trigger_problems(workflow: str, node: dict[str, Any]) -> Iterator[str]:
    """Report form, chat and MCP triggers, which cannot be called as webhooks."""
    kind = str(node.get("type"))
    if kind in _OTHER_TRIGGERS:
        yield f"workflow {workflow!r} starts with {_OTHER_TRIGGERS[kind]}; give it a Webhook node to call it as a tool"
    elif kind == _MCP_NODE:
        parameters = node.get("parameters")
        path = parameters.get("path") if is_object(parameters) else ""
        where = sanitize(f"/mcp/{path}", ())
        yield f"workflow {workflow!r} is an MCP server: connect it as a source of its own, transport mcp, at {where}"


def _methods(parameters: dict[str, Any]) -> list[str]:
    """Return the methods of a node; n8n omits default values, and each method has its own branch."""
    several = parameters.get("multipleMethods") is True
    given = parameters.get("httpMethod", ["GET", "POST"] if several else "GET")
    offered = given if is_array(given) else [given]
    return [method for method in _METHODS if method in offered]


def _path(workflow: dict[str, Any], node: dict[str, Any], parameters: dict[str, Any]) -> str | None:
    """Return the path below `/webhook/`, encoded except for `:name` parameters; None for an expression.

    n8n prefixes a path with parameters by the webhook id, and that of a node without an id by workflow and node.
    """
    configured = parameters.get("path") or ""
    if not isinstance(configured, str) or configured.startswith("="):
        return None
    webhook_id, path = node.get("webhookId"), configured.strip("/")
    if not isinstance(webhook_id, str) or not webhook_id:
        path = f"{workflow.get('id')}/{str(node.get('name')).lower()}/{path}"
    elif not path:
        path = webhook_id
    elif any(step.startswith(":") for step in path.split("/")):
        path = f"{webhook_id}/{path}"
    steps = path.rstrip("/").split("/")
    return None if not _DOT_SEGMENTS.isdisjoint(steps) else "/".join(quote(step, safe=":") for step in steps)


def _login(parameters: dict[str, Any]) -> str:
    login = parameters.get("authentication")
    return login if isinstance(login, str) and login != "none" else ""


def _notes(
    workflow: dict[str, Any], version: dict[str, Any], node: dict[str, Any], nodes: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Return the node's notes, the descriptions of the workflow, and the sticky notes, in this order."""
    meta = workflow.get("meta")
    texts = [node.get("notes"), workflow.get("description"), version.get("description")]
    texts.append(meta.get("description") if is_object(meta) else None)
    for other in nodes:
        parameters = other.get("parameters")
        if other.get("type") == _STICKY_NOTE and is_object(parameters):
            texts.append(parameters.get("content"))
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def _pinned_sample(workflow: dict[str, Any], node: dict[str, Any], method: str) -> Any:
    """Return the body or query of the call that is pinned to the node as test data."""
    pinned = workflow.get("pinData")
    items = pinned.get(str(node.get("name"))) if is_object(pinned) else None
    first = items[0] if is_array(items) and items else None
    inner = first.get("json", first) if is_object(first) else None
    return inner.get("query" if method in ("GET", "DELETE", "HEAD") else "body") if is_object(inner) else None


def slugify(text: str) -> str:
    """Convert a text to lower-case ASCII letters, digits and underscores; drop accents and other characters."""
    folded = unicodedata.normalize("NFKD", text[:_MAX_SLUG_CHARS].casefold())
    return _NON_ALPHANUMERIC.sub("_", folded.encode("ascii", "ignore").decode().lower()).strip("_")


def tool_names(triggers: Sequence[WebhookTrigger]) -> list[str]:
    """Return a unique tool name for each trigger, in order."""
    names = [
        slugify(trigger.workflow) or f"workflow_{slugify(trigger.workflow_id)}".rstrip("_") for trigger in triggers
    ]
    # Every trigger of a shared name gets the suffix, so that a new workflow never takes over a name in use.
    for suffix in (_path_suffix, _method_suffix, _hash_suffix):
        counts = Counter(names)
        names = [
            f"{name}_{suffix(trigger)}" if counts[name] > 1 else name
            for name, trigger in zip(names, triggers, strict=True)
        ]
    return names


def _path_suffix(trigger: WebhookTrigger) -> str:
    return slugify(trigger.path) or "root"


def _method_suffix(trigger: WebhookTrigger) -> str:
    return trigger.method.lower()


def _hash_suffix(trigger: WebhookTrigger) -> str:
    parts = [trigger.workflow, trigger.workflow_id, trigger.node, trigger.path, trigger.method]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
