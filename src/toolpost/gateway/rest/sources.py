"""Operations on sources: list and show them; add, reload and remove them while calls run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import asdict
from pydantic import ValidationError
from starlette.responses import Response

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.components import ref
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest

if TYPE_CHECKING:
    from toolpost.gateway.source_changes import ChangedSources
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_index import SourceState

OPERATIONS = Operations("sources")
_ENTRY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "transport": {"type": "string"}, "connection": {"type": "string"}},
    "required": ["name", "transport", "connection"],
    "description": "The keys of an entry of `sources` in toolpost.yaml",
}


@OPERATIONS.declare("GET", "/sources", answers={200: {"type": "array", "items": ref("Source")}})
async def list_sources(request: RestRequest) -> Response:
    """List the sources and their states."""
    return JsonResponse([asdict(state) for state in request.box.report])


@OPERATIONS.declare("GET", "/sources/{name}", answers={200: ref("Source")}, problems=(404,))
async def show_source(request: RestRequest) -> Response:
    """Show the state of one source."""
    return JsonResponse(asdict(_find_source(request)))


@OPERATIONS.declare(
    "POST", "/sources", scope=("admin",), operator=True, takes=_ENTRY, answers={201: ref("Source")}, problems=(409,)
)
async def add_source(request: RestRequest) -> Response:
    """Connect another source until the gateway stops; the configuration file is not changed."""
    try:
        config = ExternalToolConfig.model_validate(request.body)
    except ValidationError as error:
        issues = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise Problem(422, "invalid_body", f"the source is invalid: {issues[0]}", errors=issues) from None
    if any(state.name == config.name for state in request.box.report):
        raise Problem(409, "source_exists", f"the source {config.name!r} already exists; remove it first")
    await request.box.sources.add(config)
    request.service.changed_sources.add(config.name, request.body)
    await request.service.request_siblings(request.raw, request.body)
    added = [asdict(state) for state in request.box.report if state.name == config.name]
    disabled = {"name": config.name, "transport": str(config.transport), "ok": False, "tools": 0}
    disabled |= {"error": "the source is not enabled", "state": "down"}
    return JsonResponse(added[0] if added else disabled, 201)


@OPERATIONS.declare(
    "POST",
    "/sources/{name}/reload",
    scope=("admin",),
    operator=True,
    answers={200: ref("Source")},
    problems=(404, 502, 503, 504),
)
async def reload_source(request: RestRequest) -> Response:
    """Reconnect a source; running calls finish on the old connection."""
    await request.box.sources.reload(_find_source(request).name)
    await request.service.request_siblings(request.raw)
    return JsonResponse(asdict(_find_source(request)))


@OPERATIONS.declare("DELETE", "/sources/{name}", scope=("admin",), operator=True, answers={204: None}, problems=(404,))
async def remove_source(request: RestRequest) -> Response:
    """Remove a source after its running calls have finished."""
    name = _find_source(request).name
    await request.box.sources.remove(name)
    configured = {source.name for source in request.box.settings.all_sources()}
    request.service.changed_sources.remove(name, is_configured=name in configured)
    await request.service.request_siblings(request.raw)
    return Response(status_code=204)


def _find_source(request: RestRequest) -> SourceState:
    name = request.path["name"]
    for state in request.box.report:
        if state.name == name:
            return state
    raise Problem(404, "source_not_found", f"unknown source {name!r}")


async def apply_changes(box: Toolbox, changed: ChangedSources) -> None:
    """Apply the changes of sources that other workers made before this one started."""
    for name, change in changed.changes.items():
        if any(state.name == name for state in box.report):
            await box.sources.remove(name)
        with suppress(ToolError):  # a source that fails here failed in the other workers too
            if "add" in change:
                await box.sources.add(ExternalToolConfig.model_validate(change["add"]))
