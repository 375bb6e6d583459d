"""Operations on sources: list and show them; add, change, reload and remove them while calls run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.configuration.file_editor import InsertionError, add_sources, set_source_flags
from toolpost.configuration.file_editor import remove_source as remove_entry
from toolpost.configuration.loading import for_gateway, load_settings
from toolpost.connecting.source_plans import literal_secrets_of
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.events import EventCode, EventFilter
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.sources import ProcessSource
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.new_sources import (
    ENTRY,
    check_commands,
    check_variables,
    environ_of,
    parse_source,
    path_of_config,
)
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.rest.source_documents import disabled_document, source_document, source_documents, source_yaml

if TYPE_CHECKING:
    from toolpost.gateway.source_changes import ChangedSources
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_index import SourceState

OPERATIONS = Operations("sources")
_PERSIST = {
    "persist": {
        "type": "string",
        "enum": ["yes", "no"],
        "default": "no",
        "description": "Whether the configuration file is changed; else the change ends with the gateway",
    }
}
_WAIT_S = 10.0  # for a source of the file to connect
_MOST_LOG = 500


@OPERATIONS.declare("GET", "/sources", answers={200: {"type": "array", "items": ref("Source")}})
async def list_sources(request: RestRequest) -> Response:
    """List the sources, their states and their recent calls."""
    return JsonResponse(await source_documents(request.box, tenant=request.tenant))


@OPERATIONS.declare("GET", "/sources/{name}", answers={200: ref("Source")}, problems=(404,))
async def show_source(request: RestRequest) -> Response:
    """Show one source; `yaml` is its entry of the configuration, for callers who may read the log of its server."""
    document = await _document(request, request.path["name"])
    if _reads_servers(request) and request.caller.scopes & {"answer", "admin"}:
        environ = environ_of(request)
        document["yaml"] = await asyncio.to_thread(source_yaml, request.box, document["name"], environ)
    return JsonResponse(document)


@OPERATIONS.declare(
    "POST",
    "/sources",
    scope=("admin",),
    operator=True,
    query=_PERSIST,
    takes=ENTRY,
    answers={201: ref("Source")},
    problems=(409,),
)
async def add_source(request: RestRequest) -> Response:
    """Connect another source until the gateway stops, or also add it to the configuration file."""
    config = parse_source(request.body)
    check_commands(request, config)
    if any(state.name == config.name for state in request.box.report):
        raise Problem(409, "source_exists", f"the source {config.name!r} already exists; remove it first")
    if request.query["persist"] == "yes":
        return JsonResponse(await _persist(request, config), 201)
    await request.box.sources.add(config)
    request.service.changed_sources.add(config.name, request.body)
    await request.service.request_siblings(request.raw, request.body)
    added = await source_document(request.box, config.name, tenant=request.tenant)
    return JsonResponse(added or disabled_document(request.box, config), 201)


@OPERATIONS.declare(
    "PATCH",
    "/sources/{name}",
    scope=("admin",),
    operator=True,
    takes={
        "type": "object",
        "properties": {"enabled": {"type": "boolean"}, "trust": {"type": "boolean"}},
        "minProperties": 1,
        "additionalProperties": False,
    },
    answers={200: ref("Source")},
    problems=(404, 409),
)
async def change_source(request: RestRequest) -> Response:
    """Enable, disable or trust a source in the configuration file, and apply the change."""
    name, path = request.path["name"], path_of_config(request)
    await _document(request, name)  # 404 for an unknown source
    _check_declared(request, name)
    if request.body.get("enabled"):  # this starts the program of a source
        for config in request.box.settings.all_sources():
            if config.name == name:
                check_commands(request, config)
    try:
        await asyncio.to_thread(set_source_flags, path, name, request.body, environ=environ_of(request))
    except ConfigError as error:
        raise Problem(409, "file_unchanged", f"{path.name} was not changed: {error}") from None
    await _apply_file(request)
    await request.box.wait_for_sources({name}, timeout_s=_WAIT_S)
    return JsonResponse(await _document(request, name))


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
    name = _find_source(request).name
    check_commands(request, request.box.sources.index.find(name).config)
    await request.box.sources.reload(name)
    await request.service.request_siblings(request.raw)
    return JsonResponse(await _document(request, name))


@OPERATIONS.declare(
    "DELETE",
    "/sources/{name}",
    scope=("admin",),
    operator=True,
    query=_PERSIST,
    answers={204: None},
    problems=(404, 409),
)
async def remove_source(request: RestRequest) -> Response:
    """Remove a source after its running calls have finished, also from the configuration file if requested."""
    name, path = request.path["name"], path_of_config(request)
    if request.query["persist"] == "yes":
        await _document(request, name)
        _check_declared(request, name)
        try:
            await asyncio.to_thread(remove_entry, path, name)
        except ConfigError as error:
            raise Problem(409, "file_unchanged", f"{path.name} was not changed: {error}") from None
        await _apply_file(request)
        if not any(state.name == name for state in request.box.report):
            return Response(status_code=204)
    name = _find_source(request).name
    await request.box.sources.remove(name)
    configured = {source.name for source in request.box.settings.all_sources()}
    request.service.changed_sources.remove(name, is_configured=name in configured)
    await request.service.request_siblings(request.raw)
    return Response(status_code=204)


@OPERATIONS.declare(
    "GET",
    "/sources/{name}/log",
    scope=("answer", "admin"),
    query={
        "after": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "description": "Only events after this ID"},
        "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_LOG, "default": 100},
    },
    answers={200: ref("SourceLog")},
    problems=(404,),
)
async def show_source_log(request: RestRequest) -> Response:
    """Show the newest log messages of a source's server, its state changes, and the end of its stderr."""
    if not _reads_servers(request):
        detail = (
            "a server logs the calls of all tenants: this needs the operator's token or a caller of the tenant "
            f"{LOCAL_TENANT!r}"
        )
        raise Problem(403, "operator_required", detail)
    name = _find_source(request).name
    codes = frozenset({EventCode.SOURCE_LOGGED, EventCode.SOURCE_UP, EventCode.SOURCE_DOWN})
    events = await request.box.store.events.read(
        tenant=LOCAL_TENANT,
        run_id=f"source_{name}",
        after=request.query.get("after", 0),
        limit=request.query["limit"],
        only=EventFilter(codes=codes),
        newest=True,
    )
    lines = [
        {
            "id": event.id,
            "at": event.at,
            "type": event.code.name,
            "level": event.payload.get("level"),
            "text": event.payload.get("text") or event.payload.get("detail") or event.payload.get("state", ""),
        }
        for event in events
    ]
    source = request.box.sources.index.source(name)
    stderr = source.stderr_tail if isinstance(source, ProcessSource) else ""
    return JsonResponse({"lines": lines, "stderr": request.box.redactor.text(stderr) or None})


def _reads_servers(request: RestRequest) -> bool:
    """Return whether the caller may read what servers log and how they are configured, which is that of all tenants."""
    return request.tenant == LOCAL_TENANT or request.caller.is_operator


async def _persist(request: RestRequest, config: ExternalToolConfig) -> dict[str, Any]:
    """Add a source to the configuration file and apply the file; raise Problem without having changed it."""
    environ, path = environ_of(request), path_of_config(request)
    if request.box.config_path is None:
        raise _no_file()
    if secrets := literal_secrets_of(config, environ):
        found = ", ".join(f"{one.stands_for} (write ${{{one.name}}})" for one in secrets)
        detail = f"nothing was written, because the file would contain a secret: {found}; set the variable instead"
        raise Problem(422, "literal_secret", detail, errors=[one.stands_for for one in secrets])
    check_variables(request, config)
    if any(source.name == config.name for source in request.box.settings.all_sources()):
        raise Problem(409, "source_exists", f"{path.name} already has a source {config.name!r}; remove it first")
    try:
        await asyncio.to_thread(add_sources, path, [config], environ=environ)
    except InsertionError as error:
        raise Problem(409, "file_unchanged", f"{path.name} was not changed: {error}", errors=[error.snippet]) from None
    except ConfigError as error:
        raise Problem(409, "file_unchanged", f"{path.name} was not changed: {error}") from None
    await _apply_file(request)
    await request.box.wait_for_sources({config.name}, timeout_s=_WAIT_S)
    return await _document(request, config.name)


async def _apply_file(request: RestRequest) -> None:
    """Apply the configuration file now; other workers apply it when they see the change."""
    loaded = await asyncio.to_thread(load_settings, path_of_config(request))
    await request.box.reload(for_gateway(loaded))


def _check_declared(request: RestRequest, name: str) -> None:
    """Raise Problem for a source that the configuration file does not have."""
    if request.box.config_path is None:
        raise _no_file()
    managed = request.box.sources.index.by_name.get(name)
    if managed is not None and not managed.declared:
        file = request.box.config_path.name
        detail = (
            f"{name!r} was added until the gateway stops; to keep it, remove it and add it with persist=yes to {file}"
        )
        raise Problem(409, "not_declared", detail)


def _no_file() -> Problem:
    detail = "this gateway has no configuration file; create one with `toolpost new`, and start `toolpost up` beside it"
    return Problem(409, "no_config_file", detail)


async def _document(request: RestRequest, name: str) -> dict[str, Any]:
    found = await source_document(request.box, name, tenant=request.tenant)
    if found is None:
        raise Problem(404, "source_not_found", f"unknown source {name!r}")
    return found


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
