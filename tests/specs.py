"""OpenAPI documents that tests read: other people's, found where they are, and small ones of our own."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.parts import ROOT, found
from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.files import File
from toolpost.sources.openapi.loader import parse_api, read_api
from toolpost.sources.openapi.models import ApiDescription, ApiOperation
from toolpost.sources.openapi.requests import RequestBuilder
from toolpost.sources.requests import PlannedRequest

OWN = Path(__file__).parent / "sources/openapi/documents"
ADDRESS = "https://shop.example/docs/openapi.json"


def real_documents() -> list[Any]:
    """The real documents as test parameters; where their folder is missing, every run says so."""
    folder = Path(os.environ.get("TOOLPOST_SPECS") or ROOT.parent / "shared" / "specs")
    paths = sorted([*folder.glob("*.gz"), *folder.glob("*.json"), *folder.glob("*.yaml")])
    reason = f"NO REAL DOCUMENTS in {folder}: set TOOLPOST_SPECS to a folder of OpenAPI documents"
    absent = [pytest.param(None, id="real_documents", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(path, id=path.name.partition(".")[0]) for path in paths] or absent


def octokit() -> Path:
    """GitHub's own document, which npm brings."""
    return found("node_modules/@octokit/openapi/generated/api.github.com.json")


async def no_network(url: str) -> bytes:
    """A fetch for tests that must not need one."""
    raise ToolConnectionError(f"{url} is out of reach")


async def api_of(document: dict[str, Any], *, address: str = ADDRESS) -> ApiDescription:
    """Read a document that a test wrote down; `openapi: 3.1.0` and empty paths are understood."""
    whole = {"info": {"title": "Shop", "version": "1"}, "paths": {}, **document}
    if "swagger" not in whole:
        whole.setdefault("openapi", "3.1.0")
    return await parse_api(json.dumps(whole).encode(), address, fetch=no_network)


async def own_api(name: str, *, base_url: str | None = "https://shop.example") -> ApiDescription:
    """Read one of our own documents."""
    return await read_api(str(OWN / name), fetch=no_network, base_url=base_url)


async def operation_of(
    operation: dict[str, Any], *, path: str = "/things", method: str = "get", **rest: Any
) -> ApiOperation:
    """Read a document with a single operation."""
    (read,) = (await api_of({"paths": {path: {method: operation}}, **rest})).operations
    return read


def build_request(
    operation: ApiOperation, arguments: Mapping[str, Any], *, files: Mapping[str, File] | None = None
) -> PlannedRequest:
    """Build the request of one call."""
    return RequestBuilder(operation).build(arguments, files)
