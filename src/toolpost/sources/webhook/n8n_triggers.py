"""Read the Webhook nodes of n8n workflows, and derive tool names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from toolpost.http.response_errors import sanitize
from toolpost.schema.json_values import as_object, is_array, is_object

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


class TriggerReader(Struct):
    """The Webhook nodes of workflows, and the problems of nodes that were skipped."""

    triggers: list[WebhookTrigger] = field(default_factory=list["WebhookTrigger"])
    problems: list[str] = field(default_factory=list[str])

    def add(self, workflow: dict[str, Any]) -> None:
        """Add the triggers of one workflow; inactive and archived ones have none."""
        if workflow.get("active") is False or workflow.get("isArchived") is True:
            return
        name = sanitize(str(workflow.get("name") or ""), ())
        version = workflow.get("activeVersion")
        if not is_object(version) or not is_array(version.get("nodes")):
            version = workflow  # of an n8n without published versions; otherwise it may hold an unpublished draft
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
        parameters = as_object(node.get("parameters"))
        # n8n omits default values.
        several = parameters.get("multipleMethods") is True
        value = parameters.get("httpMethod", ["GET", "POST"] if several else "GET")
        offered = value if is_array(value) else [value]
        methods, path = [method for method in _METHODS if method in offered], _path(workflow, node, parameters)
        if not methods or path is None:
            reason = "its path or method is an n8n expression" if path is None else "its method cannot be called"
            self.problems.append(f"workflow {name!r} has a webhook that is skipped: {reason}")
            return
        login = parameters.get("authentication")
        self.triggers += [
            WebhookTrigger(
                workflow=name,
                workflow_id=sanitize(str(workflow.get("id") or ""), ()),
                node=sanitize(str(node.get("name") or ""), ()),
                method=method,
                path=path,
                slots=tuple(step[1:] for step in path.split("/") if step.startswith(":") and step[1:]),
                mode=str(parameters.get("responseMode") or RESPOND_IMMEDIATELY),
                login=login if isinstance(login, str) and login != "none" else "",
                notes=notes,
                sample=_pinned_sample(workflow, node, method),
            )
            for method in methods
        ]


def _other_trigger_problems(workflow: str, node: dict[str, Any]) -> Iterator[str]:
    """Report form, chat and MCP triggers, which cannot be called as webhooks."""
    kind = str(node.get("type"))
    if kind in _OTHER_TRIGGERS:
        yield f"workflow {workflow!r} starts with {_OTHER_TRIGGERS[kind]}; give it a Webhook node to call it as a tool"
    elif kind == _MCP_NODE:
        where = sanitize(f"/mcp/{as_object(node.get('parameters')).get('path', '')}", ())
        yield f"workflow {workflow!r} is an MCP server: connect it as a separate source, transport mcp, at {where}"


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


def _notes(
    workflow: dict[str, Any], version: dict[str, Any], node: dict[str, Any], nodes: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Return the node's notes, the descriptions of the workflow, and the sticky notes, in this order."""
    texts = [node.get("notes"), workflow.get("description"), version.get("description")]
    texts.append(as_object(workflow.get("meta")).get("description"))
    stickies = [other for other in nodes if other.get("type") == _STICKY_NOTE]
    texts += [as_object(sticky.get("parameters")).get("content") for sticky in stickies]
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def _pinned_sample(workflow: dict[str, Any], node: dict[str, Any], method: str) -> Any:
    """Return the body or query of the call that is pinned to the node as test data."""
    items = as_object(workflow.get("pinData")).get(str(node.get("name")))
    first = items[0] if is_array(items) and items else None
    inner = first.get("json", first) if is_object(first) else None
    return inner.get("query" if method in ("GET", "DELETE", "HEAD") else "body") if is_object(inner) else None


class WebhookTrigger(Struct, frozen=True, kw_only=True):
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


def tool_names(triggers: Sequence[WebhookTrigger]) -> list[str]:
    """Return a unique tool name for each trigger, in order."""
    names = [
        slugify(trigger.workflow) or f"workflow_{slugify(trigger.workflow_id)}".rstrip("_") for trigger in triggers
    ]
    # Every trigger of a shared name gets the suffix, so that a new workflow never takes over a name in use.
    suffixes: tuple[Callable[[WebhookTrigger], str], ...] = (
        lambda trigger: slugify(trigger.path) or "root",
        lambda trigger: trigger.method.lower(),
        _hash_suffix,
    )
    for suffix in suffixes:
        counts = Counter(names)
        names = [
            f"{name}_{suffix(trigger)}" if counts[name] > 1 else name
            for name, trigger in zip(names, triggers, strict=True)
        ]
    return names


def _hash_suffix(trigger: WebhookTrigger) -> str:
    parts = [trigger.workflow, trigger.workflow_id, trigger.node, trigger.path, trigger.method]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]


def slugify(text: str) -> str:
    """Convert a text to lower-case ASCII letters, digits and underscores; drop accents and other characters."""
    folded = unicodedata.normalize("NFKD", text[:_MAX_SLUG_CHARS].casefold())
    return _NON_ALPHANUMERIC.sub("_", folded.encode("ascii", "ignore").decode().lower()).strip("_")
