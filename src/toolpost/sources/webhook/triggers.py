"""The webhooks of a workflow, read from its nodes; what cannot be called as one is told as a problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.failures import presentable

if TYPE_CHECKING:
    from collections.abc import Iterator

WEBHOOK = "n8n-nodes-base.webhook"
AT_ONCE = "onReceived"
_MCP = "@n8n/n8n-nodes-langchain.mcpTrigger"
_STICKY = "n8n-nodes-base.stickyNote"
_OTHERS = {
    "n8n-nodes-base.formTrigger": "a form, which people fill in",
    "@n8n/n8n-nodes-langchain.chatTrigger": "a chat, which keeps a session",
}
_METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE", "HEAD")
_STEPS = frozenset({".", ".."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One webhook node: how it is called, when it answers, and what is written beside it."""

    workflow: str
    workflow_id: str
    node: str
    method: str
    path: str
    slots: tuple[str, ...] = ()
    mode: str = AT_ONCE
    login: str = ""
    notes: tuple[str, ...] = ()
    sample: Any = None


@dataclass(slots=True)
class Triggers:
    """The webhooks that were found, and what was left out and why."""

    found: list[Trigger] = field(default_factory=list["Trigger"])
    problems: list[str] = field(default_factory=list[str])

    def read(self, workflow: dict[str, Any]) -> None:
        """Add those of one workflow."""
        if workflow.get("active") is False or workflow.get("isArchived") is True:
            return
        name = presentable(str(workflow.get("name") or ""), ())
        live = _live(workflow)
        nodes = live.get("nodes")
        if not is_array(nodes):
            self.problems.append(f"workflow {name!r} has no nodes that can be read")
            return
        read = [node for node in nodes if is_object(node) and node.get("disabled") is not True]
        for node in read:
            if node.get("type") == WEBHOOK:
                self._webhook(workflow, name, node, _notes(workflow, live, node, read))
            else:
                self.problems += _stranger(name, node)

    def _webhook(self, workflow: dict[str, Any], name: str, node: dict[str, Any], notes: tuple[str, ...]) -> None:
        given = node.get("parameters")
        parameters = given if is_object(given) else {}
        methods, path = _methods(parameters), _path(workflow, node, parameters)
        if not methods or path is None:
            told = "its path or method is worked out by n8n" if path is None else "its method cannot be called"
            self.problems.append(f"workflow {name!r} has a webhook that is left out: {told}")
            return
        self.found += [
            Trigger(
                workflow=name,
                workflow_id=presentable(str(workflow.get("id") or ""), ()),
                node=presentable(str(node.get("name") or ""), ()),
                method=method,
                path=path,
                slots=tuple(step[1:] for step in path.split("/") if step.startswith(":") and step[1:]),
                mode=str(parameters.get("responseMode") or AT_ONCE),
                login=_login(parameters),
                notes=notes,
                sample=_sample(workflow, node, method),
            )
            for method in methods
        ]


def _live(workflow: dict[str, Any]) -> dict[str, Any]:
    """The version that answers calls; beside it, a workflow may hold a draft that was not published yet."""
    version = workflow.get("activeVersion")
    return version if is_object(version) and is_array(version.get("nodes")) else workflow


def _stranger(workflow: str, node: dict[str, Any]) -> Iterator[str]:
    """What is said of other triggers."""
    kind = str(node.get("type"))
    if kind in _OTHERS:
        yield f"workflow {workflow!r} starts with {_OTHERS[kind]}; give it a Webhook node to call it as a tool"
    elif kind == _MCP:
        parameters = node.get("parameters")
        path = parameters.get("path") if is_object(parameters) else ""
        where = presentable(f"/mcp/{path}", ())
        yield f"workflow {workflow!r} is an MCP server: connect it as a source of its own, transport mcp, at {where}"


def _methods(parameters: dict[str, Any]) -> list[str]:
    """The methods; of several, each leads another way through the workflow.

    A default is not written down.
    """
    several = parameters.get("multipleMethods") is True
    given = parameters.get("httpMethod", ["GET", "POST"] if several else "GET")
    offered = given if is_array(given) else [given]
    return [method for method in _METHODS if method in offered]


def _path(workflow: dict[str, Any], node: dict[str, Any], parameters: dict[str, Any]) -> str | None:
    """The path below `/webhook/`, encoded but for its slots; None for one that an expression makes.

    n8n puts the id of the webhook before a path with slots, and other words before that of a node without an id.
    """
    written = parameters.get("path") or ""
    if not isinstance(written, str) or written.startswith("="):
        return None
    own, path = node.get("webhookId"), written.strip("/")
    if not isinstance(own, str) or not own:
        path = f"{workflow.get('id')}/{str(node.get('name')).lower()}/{path}"
    elif not path:
        path = own
    elif any(step.startswith(":") for step in path.split("/")):
        path = f"{own}/{path}"
    steps = path.rstrip("/").split("/")
    return None if not _STEPS.isdisjoint(steps) else "/".join(quote(step, safe=":") for step in steps)


def _login(parameters: dict[str, Any]) -> str:
    login = parameters.get("authentication")
    return login if isinstance(login, str) and login != "none" else ""


def _notes(
    workflow: dict[str, Any], live: dict[str, Any], node: dict[str, Any], nodes: list[dict[str, Any]]
) -> tuple[str, ...]:
    """What people wrote: the node's own notes, descriptions, then the notes that stick beside the nodes."""
    meta = workflow.get("meta")
    texts = [node.get("notes"), workflow.get("description"), live.get("description")]
    texts.append(meta.get("description") if is_object(meta) else None)
    for other in nodes:
        parameters = other.get("parameters")
        if other.get("type") == _STICKY and is_object(parameters):
            texts.append(parameters.get("content"))
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def _sample(workflow: dict[str, Any], node: dict[str, Any], method: str) -> Any:
    """What was pinned to the node as a test: the body of that call, or its query."""
    pinned = workflow.get("pinData")
    items = pinned.get(str(node.get("name"))) if is_object(pinned) else None
    first = items[0] if is_array(items) and items else None
    inner = first.get("json", first) if is_object(first) else None
    return inner.get("query" if method in ("GET", "DELETE", "HEAD") else "body") if is_object(inner) else None
