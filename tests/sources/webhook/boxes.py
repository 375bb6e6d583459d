"""Toolboxes with one webhook source, for the tests of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.patient_settings import PatientSettings
from tests.sources.webhook.replay import N8n, framed
from tests.wire.site import Received
from toolpost import ExternalToolConfig, Toolbox

JSON = {"content-type": "application/json; charset=utf-8"}


def source(connection: str, **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name="hooks", transport="webhook", connection=connection, **options)


def toolbox(one: ExternalToolConfig) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[one]))


def plain_box(connection: str, **options: Any) -> Any:
    """Webhooks without looking at what is there."""
    webhook = {"kind": "plain", **options.pop("options", {})}
    return toolbox(source(connection, options=webhook, **options))


def n8n_box(n8n: N8n, **options: Any) -> Any:
    """A source named n8n, with the key of its API."""
    given = {"auth_type": "api_key", "auth_config": {"api_key": n8n.key}, **options}
    return toolbox(ExternalToolConfig(name="n8n", transport="webhook", connection=n8n.url, **given))


def names(box: Any, of: str) -> set[str]:
    return {spec.name for spec in box.registry.specs() if spec.source == of}


def said(status: int, value: Any, **headers: str) -> bytes:
    """An answer in JSON, or in bytes of its own type."""
    if isinstance(value, bytes):
        return framed(status, headers, value)
    return framed(status, {**JSON, **headers}, json.dumps(value).encode())


def by_path(**answers: bytes) -> Callable[[Received, asyncio.StreamWriter], Awaitable[None]]:
    """Answers by the last step of a path; `page` stands for everything else."""

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        step = received.path.partition("?")[0].rpartition("/")[2].replace("-", "_")
        writer.write(answers.get(step) or answers.get("page") or said(404, {"message": "nothing here"}))
        await writer.drain()

    return answer


def workflow(name: str = "Flow", path: str = "flow", **changes: Any) -> dict[str, Any]:
    """A workflow with one webhook, as n8n's API tells of it."""
    parameters = {"path": path, "httpMethod": "POST", "responseMode": "lastNode", **changes.pop("parameters", {})}
    node = {"name": "Webhook", "type": "n8n-nodes-base.webhook", "webhookId": "w-1", "parameters": parameters}
    node |= changes.pop("node", {})
    nodes = [node, *changes.pop("nodes", [])]
    return {"id": f"id-{path}", "name": name, "active": True, "nodes": nodes, **changes}


def sticky(text: str) -> dict[str, Any]:
    return {"name": "Note", "type": "n8n-nodes-base.stickyNote", "parameters": {"content": text}}


def listing(*workflows: Any, cursor: str | None = None) -> bytes:
    return said(200, {"data": list(workflows), "nextCursor": cursor})
