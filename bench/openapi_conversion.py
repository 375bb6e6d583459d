"""Figures of reading OpenAPI documents: from the parsed document to tools, from the cache, and the memory of it."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part, measured, tell
from tests.specs import no_network, octokit, real_documents
from toolpost.auth.keys import FileCipher
from toolpost.cli.output import Output
from toolpost.cli.stdout_guard import guard_stdout
from toolpost.schema.schema_checks import check_schema
from toolpost.sources.openapi.cache import ApiCache
from toolpost.sources.openapi.loader import LoadedDocuments, build_api, load_documents, read_api
from toolpost.sources.openapi.model_view import BUDGET, estimate_tokens, fit_to_budget
from toolpost.sources.openapi.models import ApiDescription
from toolpost.sources.openapi.spec import tool_spec
from toolpost.stores.encryption import CacheFolder

T = TypeVar("T")

# CPU seconds from the parsed document to all tools.
LIMITS = {"github_ghes36": 1.5, "stripe_20221115": 2.0, "k8s_core_v1": 3.0}
FROM_CACHE = 0.2
MEMORY = 3.0
GROWTH = 1.5
BASE_URL = "https://api.example"

COLUMNS = (
    Column("name", "document"),
    Column("operations", "operations", 0),
    Column("parse_s", "parse s", 2),
    Column("convert_s", "convert s", 2),
    Column("check_s", "check s", 2),
    Column("views_s", "views s", 2),
    Column("cache_s", "from cache s", 3),
    Column("memory", "memory x parsed", 2),
    Column("largest", "largest view, tokens", 0),
)
NOTES = (
    "CPU of the process. Converting ends with a record of each tool; checking is what the catalog does with those.",
    "Memory is what tools and parsed document hold together, over what the document alone holds.",
)


def spent(work: Callable[[], T]) -> tuple[T, float]:
    """What some work came to, and the CPU it took."""
    with undisturbed():
        began = time.process_time()
        value = work()
        return value, time.process_time() - began


def documents() -> list[Path]:
    """The documents that are there."""
    return [*(one.values[0] for one in real_documents() if one.values[0] is not None), octokit()]


def count() -> int:
    """How many ticks the figure makes."""
    return len(documents()) + 1


def measure(tick: Tick) -> Figure:
    """Read every document."""
    rows: list[Row] = []
    for path in documents():
        rows.append(row_of(path))
        tick(path.name)
    growth = _growth()
    tick("growth")
    return Figure(
        key="openapi_conversion",
        title="OpenAPI documents to tools",
        columns=COLUMNS,
        rows=rows,
        targets=[*_targets(rows), Target("time for each operation, 4,000 / 500", growth, "at most", GROWTH, "x")],
        notes=NOTES,
    )


def row_of(path: Path) -> Row:
    """Everything about one document."""
    raw = path.read_bytes()
    loaded, parse_s = spent(lambda: _load(raw))
    api, read_s = spent(lambda: build_api(loaded, BASE_URL))
    specs, specs_s = spent(lambda: _specs(api))
    _, check_s = spent(lambda: _checked(specs))
    views, views_s = spent(lambda: [fit_to_budget(spec.input_schema) for spec in specs])
    return {
        "name": path.name.partition(".")[0] if "octokit" not in str(path) else "octokit_api_github_com",
        "operations": len(api.operations),
        "parse_s": parse_s,
        "convert_s": read_s + specs_s,
        "check_s": check_s,
        "views_s": views_s,
        "cache_s": _from_cache(path),
        "memory": _memory(raw),
        "largest": max(map(estimate_tokens, views)),
    }


def _load(raw: bytes) -> LoadedDocuments:
    return asyncio.run(load_documents(raw, BASE_URL, no_network))


def _specs(api: ApiDescription) -> list[Any]:
    return [tool_spec(operation, source="api") for operation in api.operations]


def _checked(specs: list[Any]) -> None:
    for spec in specs:
        check_schema(spec.input_schema, tool_name=spec.name)
        check_schema(True if spec.output_schema is None else spec.output_schema, tool_name=spec.name, role="output")


def _from_cache(path: Path) -> float:
    """The whole catalog from the cache, records of tools included."""
    with tempfile.TemporaryDirectory() as folder:
        cache = ApiCache(CacheFolder(Path(folder), FileCipher(Path(folder) / "key")))

        def load() -> ApiDescription:
            return asyncio.run(read_api(str(path), fetch=no_network, cache=cache, base_url=BASE_URL))

        load()
        return min(spent(load)[1] for _ in range(3))


def _memory(raw: bytes) -> float:
    """What the tools hold, over what the parsed document holds."""
    gc.collect()
    tracemalloc.start()
    try:
        loaded = _load(raw)
        parsed = tracemalloc.get_traced_memory()[0]
        api = build_api(loaded, BASE_URL)
        specs = _specs(api)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(specs) == len(api.operations)
    return held / parsed


def _growth() -> float:
    """How much longer each operation takes in a large document than in a small one."""
    return _per_operation(_synthetic(4000)) / _per_operation(_synthetic(500))


def _per_operation(loaded: LoadedDocuments) -> float:
    paths = loaded.first.data["paths"]
    return min(spent(lambda: _specs(build_api(loaded, BASE_URL)))[1] for _ in range(3)) / len(paths)


def _synthetic(count: int) -> LoadedDocuments:
    """A document of so many operations, each with a body and an answer of its own that share what lies below."""

    def ref(name: str) -> dict[str, str]:
        return {"$ref": f"#/components/schemas/{name}"}

    content = [{"application/json": {"schema": ref(f"T{n}")}} for n in range(count)]
    paths = {
        f"/t{n}/{{id}}": {"post": {"requestBody": {"content": one}, "responses": {"200": {"content": one}}}}
        for n, one in enumerate(content)
    }
    schemas = {
        f"T{n}": {
            "type": "object",
            "properties": {"id": {"type": "string", "readOnly": True}, "shared": ref(f"S{n % 20}")},
        }
        for n in range(count)
    }
    shared = {f"S{n}": {"type": "object", "properties": {"next": ref(f"S{(n + 1) % 20}")}} for n in range(20)}
    document = {"openapi": "3.1.0", "paths": paths, "components": {"schemas": {**schemas, **shared}}}
    return _load(json.dumps(document).encode())


def _targets(rows: list[Row]) -> list[Target]:
    named = {row["name"]: row for row in rows}
    present = [name for name in LIMITS if name in named]
    found = [Target(f"{name}, convert", named[name]["convert_s"], "at most", LIMITS[name], "s CPU") for name in present]
    if "github_ghes36" in named:
        found.append(
            Target("github_ghes36, from cache", named["github_ghes36"]["cache_s"], "at most", FROM_CACHE, "s CPU")
        )
    found.append(
        Target("memory, parsed document included", max(row["memory"] for row in rows), "at most", MEMORY, "x parsed")
    )
    found.append(Target("largest view", max(row["largest"] for row in rows), "at most", BUDGET, "tokens"))
    return found


def parts() -> list[Part]:
    """The figure as a part of a run."""
    return [Part("openapi", count(), measure)]


def main() -> int:
    began = time.perf_counter()
    with guard_stdout() as stream:
        figures = measured(parts())
        tell(figures, Output(stream, as_json="--json" in sys.argv), took_s=time.perf_counter() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
