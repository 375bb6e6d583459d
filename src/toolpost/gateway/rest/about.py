"""Operations that describe the gateway: version, extras, workers, storage, problems, settings, and its identity."""

from __future__ import annotations

import platform
from typing import Any

from starlette.responses import Response

from toolpost import __version__
from toolpost.configuration.extras import installed_extras
from toolpost.console.files import console_build
from toolpost.gateway.identity import prove_identity
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import TEXT, record, ref
from toolpost.policy.secret_shapes import MASK
from toolpost.schema.json_values import is_array, is_object

OPERATIONS = Operations("about")
_VALUES_MASKED = frozenset({"env", "headers"})


@OPERATIONS.declare("GET", "/about", scope=("answer", "admin"), answers={200: ref("About")})
async def show_about(request: RestRequest) -> Response:
    """Describe the gateway: version, extras, workers, storage, retention and problems; other tenants get no paths."""
    box, service = request.box, request.service
    settings = box.settings
    paths = {"data_dir": settings.data_dir, "config": box.config_path, "lock": settings.lock}
    shown = {name: str(path) for name, path in paths.items() if path is not None and request.caller.sees_gateway}
    return JsonResponse(
        {
            "version": __version__,
            "build": console_build(),
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.release()}",
            "extras": installed_extras(),
            "workers": 1 if service.siblings is None else service.siblings.workers,
            "public_url": service.public_url,
            **{name: shown.get(name) for name in paths},
            "database": settings.database and settings.database.partition(":")[0],
            "retention": settings.retention.model_dump(mode="json"),
            "policy": box.router.policy.template if not box.router.policy.rules else "rules",
            "commands": settings.server.console.commands,
            "problems": box.problems if request.caller.sees_gateway else None,
        }
    )


@OPERATIONS.declare(
    "GET",
    "/config",
    scope=("admin",),
    operator=True,
    answers={200: {"type": "object", "description": "The keys of toolpost.yaml that are set, without secrets"}},
)
async def show_config(request: RestRequest) -> Response:
    """Show the settings that are not defaults, with secrets and the values of `env` and `headers` masked."""
    settings = request.box.settings.model_dump(mode="json", exclude_defaults=True)
    return JsonResponse(request.box.redactor.value(_without_values(settings)))


def _without_values(value: Any, name: str = "") -> Any:
    if is_array(value):
        return [_without_values(part) for part in value]
    if is_object(value):
        return {key: MASK if name in _VALUES_MASKED else _without_values(part, key) for key, part in value.items()}
    return value


@OPERATIONS.declare(
    "GET",
    "/identity",
    no_caller=True,
    query={"challenge": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "Random, in hex"}},
    answers={200: record({"proof": {**TEXT, "description": "Differs for each challenge and port"}})},
)
async def show_identity(request: RestRequest) -> Response:
    """Prove that this is the gateway of its data folder, to a command that has the folder."""
    port: int = request.raw.scope["server"][1]
    return JsonResponse({"proof": prove_identity(request.box.store.mac, request.query.get("challenge", ""), port)})
