"""Operations that prepare a source: detect its kind at an address, plan its entry, and connect it once.

Detecting and planning start nothing and write nothing. A try keeps everything in memory.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import Response

from toolpost.auth.credentials import with_environment
from toolpost.catalog.specs import describe_claims, read_claims, trust_loosens
from toolpost.configuration.file_editor import config_path, snippet
from toolpost.configuration.loading import LoadedSettings, environment, resolve_source_paths
from toolpost.connecting.endpoint_detection import detect_url
from toolpost.connecting.presets import PACKAGES
from toolpost.connecting.source_plans import (
    SourceArguments,
    TargetError,
    detect_source,
    make_plan,
    missing_requirements,
    needs_detection,
    only_source,
    plan_import,
    runs_code,
    source_document,
    unset_variables,
    unsupported_target,
    variable_documents,
    with_relative_paths,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError
from toolpost.contracts.source_kinds import McpTransport
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.rest.tool_documents import said_by, verdict_document
from toolpost.policy.redaction import Redactor, mask_url_secrets
from toolpost.toolbox.box import Toolbox
from toolpost.toolbox.local_tools import network_policy
from toolpost.wire.targets import is_http_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.catalog.lock import Pin
    from toolpost.connecting.packages import Package
    from toolpost.connecting.source_plans import ImportPlan, SourcePlan

OPERATIONS = Operations("sources")
_ADMIN: Any = {"scope": ("admin",), "operator": True}
_WHAT = {
    "type": "string",
    "minLength": 1,
    "maxLength": 10_000,
    "description": "A URL, a command, the name of a preset, or the path of a file on the gateway's machine",
}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 10_000}, "maxProperties": 100}
_SHORTEST_SECRET = 4
_FIELDS = {
    "WHAT": "$.what",
    "--name": "$.name",
    "--env": "$.env",
    "--header": "$.headers",
    "--cwd": "$.cwd",
    "--transport": "$.transport",
    "--env, --cwd": "$.env",
}
_NEXT: Mapping[str, Sequence[str]] = {
    "recognized": (),
    "guarded": ("give a header with the credential, then detect it again",),
    "unknown": (
        "say that it is an MCP server, with `transport`",
        "give the address of an API document",
        "give a header",
    ),
}
_TIMEOUTS = ("connect", "no answer within", "timed out", "timeout")

ENTRY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "transport": {"type": "string"}, "connection": {"type": "string"}},
    "required": ["name", "transport", "connection"],
    "description": "The keys of an entry of `sources` in toolpost.yaml",
}


@OPERATIONS.declare("GET", "/presets", **_ADMIN, answers={200: {"type": "array", "items": ref("Preset")}})
async def list_presets(request: RestRequest) -> Response:
    """List the MCP servers that can be connected by name."""
    environ = environ_of(request)
    return JsonResponse([_preset(name, package, environ) for name, package in PACKAGES.items()])


@OPERATIONS.declare(
    "POST",
    "/sources/detect",
    **_ADMIN,
    takes={
        "type": "object",
        "properties": {
            "what": {**_WHAT, "pattern": r"^[hH][tT][tT][pP][sS]?://", "description": "A URL"},
            "headers": {**_TEXTS, "description": "Headers of the requests, used for this detection alone"},
        },
        "required": ["what"],
        "additionalProperties": False,
    },
    answers={200: ref("DetectedSource")},
)
async def detect_new_source(request: RestRequest) -> Response:
    """Detect what is at a URL, with requests that change nothing."""
    url, headers = request.body["what"], request.body.get("headers", {})
    redactor = Redactor([value for value in headers.values() if len(value) >= _SHORTEST_SECRET])
    try:
        found = await detect_url(url, headers, network_policy(request.box.settings))
    except (ValueError, ToolError) as error:
        raise Problem(422, "invalid_body", f"the body is invalid: $.what: {redactor.text(str(error))}") from None
    is_found = found.transport is not None and found.detection is not None
    status = (
        "recognized" if is_found else "guarded" if found.kind == "guarded" or _is_refused(found.because) else "unknown"
    )
    return JsonResponse(
        {
            "status": status,
            "transport": None if found.transport is None else found.transport.name,
            "title": None if found.detection is None else found.detection.label,
            "because": redactor.text(found.because),
            "kind": found.kind,
            "tried": [
                {"url": redactor.text(mask_url_secrets(probed.url)), "answer": probed.answer} for probed in found.tried
            ],
            "next": _NEXT[status],
        }
    )


@OPERATIONS.declare(
    "POST",
    "/sources/plan",
    **_ADMIN,
    takes={
        "type": "object",
        "properties": {
            "what": _WHAT,
            "name": {"type": "string", "minLength": 1, "maxLength": 100},
            "env": {**_TEXTS, "description": "Variables of a program"},
            "headers": {**_TEXTS, "description": "Headers of requests to a URL"},
            "cwd": {"type": "string", "minLength": 1, "maxLength": 4000},
            "transport": {"type": "string", "enum": [kind.value for kind in McpTransport]},
        },
        "required": ["what"],
        "additionalProperties": False,
    },
    answers={200: ref("SourcePlan")},
    problems=(404, 409),
)
async def plan_new_source(request: RestRequest) -> Response:
    """Plan the entry of a source; start and write nothing, and replace secrets by references to variables."""
    plan, path = await _plan(request), path_of_config(request)
    environ, source = environ_of(request), with_relative_paths(plan.source, path)
    missing = unset_variables([plan.source], environ)
    command = None
    if runs_code(plan.source):
        argv = [] if is_http_url(plan.source.connection) else _split(plan.source.connection)
        command = {"argv": argv, "cwd": plan.source.cwd, "env_names": list(plan.source.env)}
    return JsonResponse(
        {
            "source": source.model_dump(mode="json", exclude_defaults=True),
            "yaml": snippet([source]),
            "found": plan.found or None,
            "command": command,
            "variables": variable_documents(missing, plan.variables, environ),
            "notes": list(plan.notes),
            "missing": [*missing_requirements(plan.source, environ), *(f"{name} is not set" for name in missing)],
            "exists": source.name in {state.name for state in request.box.report},
        }
    )


@OPERATIONS.declare(
    "POST",
    "/sources/try",
    **_ADMIN,
    takes={
        "type": "object",
        "properties": {
            "source": ENTRY,
            "values": {**_TEXTS, "description": "Values of variables, used for this try alone and never written"},
        },
        "required": ["source"],
        "additionalProperties": False,
    },
    answers={200: ref("TriedSource")},
    problems=(409, 502, 504),
)
async def try_source(request: RestRequest) -> Response:
    """Connect a source once without adding it, and list its tools with their verdicts."""
    config = parse_source(request.body["source"])
    check_commands(request, config)
    values: Mapping[str, str] = request.body.get("values", {})
    environ = {**environ_of(request), **values}
    check_variables(request, config, environ)
    try:
        filled = resolve_source_paths(with_environment(config, environ), path_of_config(request).parent)
    except ToolAuthError as error:
        raise Problem(409, "variable_unset", error.message) from None
    secrets = frozenset(value for name in unset_variables([config], {}) if (value := environ.get(name)))
    redactor = Redactor([value for value in secrets if len(value) >= _SHORTEST_SECRET])
    settings = request.box.settings.model_copy(update={"sources": [filled], "webhooks": [], "database": None})
    loaded = LoadedSettings(settings=only_source(settings, config.name), path=path_of_config(request), secrets=secrets)
    async with Toolbox(settings=loaded) as box:
        await box.wait_for_sources(timeout_s=filled.connect_timeout_s + 5)
        state = next(one for one in box.report if one.name == config.name)
        if not state.ok or state.state == "connecting":
            raise _failed_try(config.name, redactor.text(state.error or ""), is_connecting=state.state == "connecting")
        entries = [box.registry.find(spec.name) for spec in box.registry.specs() if spec.source == config.name]
        pins = box.sources.index.pins(config.name)
        tools = [
            {
                "name": entry.spec.name,
                "description": entry.spec.description,
                "side_effects": entry.spec.side_effects,
                "destructive": entry.spec.safety.destructive,
                "said_by": said_by(entry),
                "claims": describe_claims(read_claims(entry.original)),
                "trust_loosens": trust_loosens(read_claims(entry.original)),
                "verdict": verdict_document(request.box.router.policy.verdict(entry.spec)),
                "hash": _hash_of(pins, entry.spec.name),
            }
            for entry in entries
        ]
        # Not those of the settings: rules and overrides may name tools of the other sources.
        problems = [redactor.text(problem) for problem in box.sources.index.problems]
    return JsonResponse({"name": config.name, "tools": tools, "problems": problems})


@OPERATIONS.declare(
    "POST",
    "/sources/import",
    **_ADMIN,
    takes={
        "type": "object",
        "properties": {
            "file": {"type": "string", "minLength": 2, "maxLength": 1_000_000, "description": "The text of the file"},
            "name": {
                "type": "string",
                "pattern": r"^[A-Za-z0-9._-]{1,100}$",
                "default": "mcp.json",
                "description": "Its name, such as `.mcp.json` or `settings.json`",
            },
        },
        "required": ["file"],
        "additionalProperties": False,
    },
    answers={200: ref("ImportPlan")},
)
async def plan_sources_import(request: RestRequest) -> Response:
    """Plan to import the servers of another program's file; start and write nothing."""
    environ = environ_of(request)
    plan, notes = await asyncio.to_thread(
        _plan_import, request.body["file"], request.body.get("name", "mcp.json"), path_of_config(request)
    )
    return JsonResponse(
        {
            "sources": [
                {
                    **source_document(source),
                    "source": source.model_dump(mode="json", exclude_defaults=True),
                    "runs_code": runs_code(source),
                }
                for source in plan.new
            ],
            "yaml": snippet(plan.new) if plan.new else "",
            "skipped": plan.skipped,
            "variables": variable_documents(unset_variables(plan.new, environ), plan.imported.variables, environ),
            "notes": notes,
        }
    )


def _plan_import(text: str, name: str, path: Path) -> tuple[ImportPlan, list[str]]:
    """Plan an import, and return its notes without the path of the temporary file."""
    with tempfile.TemporaryDirectory(prefix="toolpost-import-") as folder:
        file = Path(folder, name.strip(".") or "mcp.json")
        file.write_text(text, encoding="utf-8", errors="replace")
        try:
            plan = plan_import(file, path)
        except ConfigError as error:
            detail = str(error).replace(f"{folder}/", "")
            raise Problem(422, "not_recognised", f"the file cannot be imported: {detail}") from None
        return plan, [note.replace(f"{folder}/", "") for note in plan.notes()]


def parse_source(entry: Mapping[str, Any]) -> ExternalToolConfig:
    """Return the configuration of an entry, or raise Problem; values are not repeated, because they may be secret."""
    try:
        return ExternalToolConfig.model_validate(entry)
    except ValidationError as error:
        issues = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise Problem(422, "invalid_body", f"the source is invalid: {issues[0]}", errors=issues) from None


def check_commands(request: RestRequest, config: ExternalToolConfig) -> None:
    """Raise Problem if the caller may not start this source's program by `server.console.commands`."""
    allowed = request.box.settings.server.console.commands
    if not runs_code(config) or (allowed == "admin" and request.caller.is_operator):
        return
    if allowed == "operator" and request.caller.has_operator_token:
        return
    who = {
        "operator": "only the operator's token may start the program of a source",
        "admin": "only an `admin` key of the tenant `local` may start the program of a source",
        "never": "programs of sources are not started over HTTP",
    }[allowed]
    detail = (
        f"{who} (server.console.commands: {allowed}); run `toolpost tools connect` on the gateway's machine, "
        "or change this setting"
    )
    raise Problem(403, "commands_not_allowed", detail)


def check_variables(request: RestRequest, config: ExternalToolConfig, environ: Mapping[str, str] | None = None) -> None:
    """Raise Problem if a source refers to variables that are not set."""
    missing = unset_variables([config], environ_of(request) if environ is None else environ)
    if missing:
        file, names = path_of_config(request).name, ", ".join(missing)
        detail = f"variables that are not set: {names}; set them in the gateway's environment or in .env beside {file}"
        raise Problem(409, "variable_unset", f"{detail}, then send this again", errors=missing)


async def _plan(request: RestRequest) -> SourcePlan:
    body = request.body
    what: str = body["what"].strip()
    first = what.partition(" ")[0]
    words = [what] if not what or first == what or first not in PACKAGES else _split(what)
    arguments = SourceArguments(
        words=words,
        name=body.get("name"),
        env=[f"{name}={value}" for name, value in body.get("env", {}).items()],
        headers=[f"{name}: {value}" for name, value in body.get("headers", {}).items()],
        cwd=None if "cwd" not in body else Path(body["cwd"]),
        transport=McpTransport(body.get("transport", "auto")),
    )
    if not what or any("\0" in word for word in words):
        raise Problem(422, "invalid_body", "the body is invalid: $.what: give a URL, a command, a preset or a file")
    try:
        if (refused := unsupported_target(words)) is not None:
            raise refused
        plan = make_plan(arguments, environ_of(request))
        if needs_detection(plan.source):
            check_variables(request, plan.source, {**environ_of(request), **plan.secrets()})
        return await detect_source(plan, network_policy(request.box.settings))
    except TargetError as error:
        raise Problem(422, "invalid_body", f"{_FIELDS.get(error.option, '$.what')}: {error.message}") from None
    except ToolError as error:
        status = 404 if error.error_code in ("file_missing", "preset_unknown") else 409
        raise Problem(status, error.error_code, error.message) from None
    except (ValidationError, ValueError, OSError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "it cannot be read"
        raise Problem(422, "invalid_body", f"the body is invalid: $.what: {reason}") from None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _failed_try(name: str, error: str, *, is_connecting: bool) -> Problem:
    if is_connecting or any(word in error for word in _TIMEOUTS[1:]):
        detail = f"{name!r} did not answer in time; nothing was added. Check that it runs, or raise connect_timeout_s"
        return Problem(504, "source_timeout", f"{detail}. {error}".rstrip(". ") + ".")
    return Problem(502, "source_failed", f"{name!r} could not be connected; nothing was added. {error}")


def _hash_of(pins: Mapping[str, Pin], name: str) -> str | None:
    pin = pins.get(name.partition(".")[2])
    return None if pin is None else pin.hash


def _is_refused(because: str) -> bool:
    return "HTTP 401" in because or "HTTP 403" in because


def _preset(name: str, package: Package, environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "description": package.description,
        "ecosystem": package.ecosystem,
        "package": package.name,
        "version": package.version,
        "reads": [{"name": variable, "set": variable in environ} for variable in package.reads],
        "advice": package.advice or None,
    }


def path_of_config(request: RestRequest) -> Path:
    """Return the configuration file, existing or not."""
    return config_path(request.box.config_path)


def environ_of(request: RestRequest) -> Mapping[str, str]:
    """Return the variables that sources can refer to, with those of `.env` beside the configuration file."""
    return environment(path_of_config(request).parent, os.environ)
