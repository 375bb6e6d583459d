"""Operations on sources: their health, and to add, reload and remove them while calls go on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import Response

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operation, RestRequest
from toolpost.gateway.rest.schemas import ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState


async def _list_sources(ask: RestRequest) -> Response:
    return JsonResponse([asdict(state) for state in ask.box.report])


async def _show_source(ask: RestRequest) -> Response:
    return JsonResponse(asdict(_find(ask)))


async def _add_source(ask: RestRequest) -> Response:
    """Connect one more source until the gateway stops; the configuration file stays as it is."""
    try:
        config = ExternalToolConfig.model_validate(ask.body)
    except ValidationError as error:
        issues = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise Problem(422, "invalid_body", f"the source does not fit: {issues[0]}", errors=issues) from None
    if any(state.name == config.name for state in ask.box.report):
        raise Problem(409, "source_exists", f"there is a source {config.name!r} already; remove it first")
    await ask.box.sources.add(config)
    await _tell_others(ask, {"add": ask.body})
    added = [state for state in ask.box.report if state.name == config.name]
    return JsonResponse(asdict(added[0]) if added else _absent(config), 201)


def _absent(config: ExternalToolConfig) -> dict[str, Any]:
    """Return the state of a source that is switched off."""
    return {
        "name": config.name,
        "transport": str(config.transport),
        "ok": False,
        "tools": 0,
        "error": "it is not enabled",
        "state": "down",
    }


async def _reload_source(ask: RestRequest) -> Response:
    """Open a source anew with its settings; calls under way end on the old one."""
    name = _find(ask).name
    await ask.box.sources.reload(name)
    await _tell_others(ask)
    return JsonResponse(asdict(_find(ask)))


async def _remove_source(ask: RestRequest) -> Response:
    name = _find(ask).name
    await ask.box.sources.remove(name)
    await _tell_others(ask, {"remove": name})
    return Response(status_code=204)


async def _tell_others(ask: RestRequest, change: dict[str, Any] | None = None) -> None:
    """Have the other workers do the same, and keep a change for a worker that is started later."""
    if change is not None:
        ask.service.source_changes.append(change)
    request = ask.raw
    await ask.service.ask_siblings(request.scope, request.method, request.url.path, ask.body)


async def apply_changes(box: Toolbox, changes: Sequence[Mapping[str, Any]]) -> None:
    """Change the sources as other workers were told to before this one was started."""
    for change in changes:
        with suppress(ToolError):  # one that cannot be had now could not be had there either
            if "add" in change:
                await box.sources.add(ExternalToolConfig.model_validate(change["add"]))
            else:
                await box.sources.remove(change["remove"])


def _find(ask: RestRequest) -> SourceState:
    name = ask.path["name"]
    for state in ask.box.report:
        if state.name == name:
            return state
    raise Problem(404, "source_not_found", f"there is no source {name!r}")


OPERATIONS = [
    Operation(
        id="list_sources",
        method="GET",
        path="/sources",
        summary="List the sources, and how each is",
        tag="sources",
        handler=_list_sources,
        answers={200: {"type": "array", "items": ref("Source")}},
    ),
    Operation(
        id="show_source",
        method="GET",
        path="/sources/{name}",
        summary="Show how one source is",
        tag="sources",
        handler=_show_source,
        answers={200: ref("Source")},
        problems=(404,),
    ),
    Operation(
        id="add_source",
        method="POST",
        path="/sources",
        summary="Connect one more source, until the gateway stops",
        tag="sources",
        handler=_add_source,
        scope=("admin",),
        takes={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "transport": {"type": "string"},
                "connection": {"type": "string"},
            },
            "required": ["name", "transport", "connection"],
            "description": "The keys of an entry of `sources` in toolpost.yaml",
        },
        answers={201: ref("Source")},
        problems=(409,),
    ),
    Operation(
        id="reload_source",
        method="POST",
        path="/sources/{name}/reload",
        summary="Open a source anew; calls under way end on the old one",
        tag="sources",
        handler=_reload_source,
        scope=("admin",),
        answers={200: ref("Source")},
        problems=(404, 502, 503, 504),
    ),
    Operation(
        id="remove_source",
        method="DELETE",
        path="/sources/{name}",
        summary="Remove a source; calls under way end first",
        tag="sources",
        handler=_remove_source,
        scope=("admin",),
        answers={204: None},
        problems=(404,),
    ),
]
