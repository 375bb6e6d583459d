"""Measure everything, peers included, and keep the result under bench/results; `--plot` draws and tells the newest."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.adapters import parts as adapters_parts
from bench.cli.parts import parts as cli_parts
from bench.core import native, sweeps
from bench.core.figures import Figure
from bench.core.main import Part, measured, tell, without_calls
from bench.core.processes import Worker
from bench.core.report import document
from bench.core.scale import FULL, QUICK, Scale
from bench.envs import HERE, environment
from bench.event_loop import parts as loop_parts
from bench.files.material import FULL as FILES_FULL
from bench.files.material import QUICK as FILES_QUICK
from bench.files.parts import parts as files_parts
from bench.gateway.parts import parts as gateway_parts
from bench.hostile import parts as hostile_parts
from bench.http.parts import parts as http_parts
from bench.mcp import scale as mcp_scale
from bench.mcp.parts import parts as mcp_parts
from bench.oauth.parts import parts as oauth_parts
from bench.openapi_conversion import parts as openapi_parts
from bench.peers import names
from bench.performance_page import write_tables
from bench.planner import scale as planner_scale
from bench.planner.parts import parts as planner_parts
from bench.search.figures import parts as search_parts
from bench.tables import parts as tables_parts
from bench.utcp.parts import parts as utcp_parts
from bench.websocket.parts import parts as websocket_parts
from bench.workflow import parts as workflow_parts
from toolpost.cli.output import Output
from toolpost.cli.stdout_guard import guard_stdout

RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"
_CHOICES = [
    *("core", "mcp", "gateway", "http", "openapi", "loop", "utcp", "websocket", "cli", "files", "oauth", "planner"),
    *("hostile", "search", "tables", "workflow", "adapters"),
]


def main() -> int:
    chosen = _parser().parse_args()
    if chosen.plot:
        return plot(sorted(RESULTS.glob("*.json")))
    began = time.perf_counter()
    with guard_stdout() as stream, ExitStack() as stack:
        figures = measured(_chosen_parts(chosen, stack))
        took_s = time.perf_counter() - began
        tell(figures, Output(stream, as_json=chosen.json), took_s=took_s)
    kept = keep(figures, took_s=took_s)
    print(f"kept in {kept}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    only = "a part of it: what ships, or one kind of source or tools"
    parser.add_argument("only", nargs="?", choices=_CHOICES, help=only)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, rougher numbers")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else")
    drawing = "draw the plots and write the tables of docs/performance.md from the newest kept results"
    parser.add_argument("--plot", action="store_true", help=drawing)
    parser.add_argument("--cycles", type=int, help="how many MCP connections are cut")
    return parser


def _chosen_parts(chosen: argparse.Namespace, stack: ExitStack) -> list[Part]:
    found: list[Part] = []
    scale = mcp_scale.QUICK if chosen.quick else mcp_scale.FULL
    if chosen.only in {None, "core"}:
        found += core_parts(QUICK if chosen.quick else FULL, stack)
    if chosen.only in {None, "mcp"}:
        found += mcp_parts(replace(scale, cycles=chosen.cycles or scale.cycles))
    if chosen.only in {None, "gateway"}:
        found += gateway_parts(scale)
    if chosen.only in {None, "http"}:
        found += http_parts(scale)
    if chosen.only in {None, "openapi"}:
        found += openapi_parts()
    if chosen.only in {None, "loop"}:
        found += loop_parts()
    if chosen.only in {None, "utcp"}:
        found += utcp_parts(scale)
    if chosen.only in {None, "websocket"}:
        found += websocket_parts(scale)
    if chosen.only in {None, "planner"}:
        found += planner_parts(planner_scale.QUICK if chosen.quick else planner_scale.FULL, stack)
    return [*found, *_local_parts(chosen)]


def _local_parts(chosen: argparse.Namespace) -> list[Part]:
    """What happens on this machine alone."""
    found: list[Part] = []
    if chosen.only in {None, "cli"}:
        found += cli_parts(mcp_scale.QUICK if chosen.quick else mcp_scale.FULL)
    if chosen.only in {None, "files"}:
        found += files_parts(FILES_QUICK if chosen.quick else FILES_FULL)
    if chosen.only in {None, "hostile"}:
        found += hostile_parts()
    if chosen.only in {None, "search"}:
        found += search_parts()
    if chosen.only in {None, "oauth"}:
        found += oauth_parts(mcp_scale.QUICK if chosen.quick else mcp_scale.FULL)
    if chosen.only in {None, "tables"}:
        found += tables_parts(quick=chosen.quick)
    if chosen.only in {None, "adapters"}:
        found += adapters_parts(quick=chosen.quick)
    if chosen.only in {None, "workflow"}:
        found += workflow_parts()
    return found


def core_parts(scale: Scale, stack: ExitStack) -> list[Part]:
    """What ships, with peers beside the native call."""
    worker = stack.enter_context(Worker(str(environment("pydantic-ai")), "bench.peers.pydantic_ai", path=[HERE.parent]))
    beside_peers = partial(native.measure, scale, tracks=[worker], peer=names.MANAGER)
    calls = Part("native call", native.count(scale, peers=len(worker.names)), beside_peers)
    return [calls, *without_calls(scale), *sweep_parts(stack)]


def sweep_parts(stack: ExitStack) -> list[Part]:
    """The figures of the plots, with peers beside them."""
    python, module = str(environment("pydantic-ai")), "bench.peers.pydantic_ai_sweeps"
    crowds = stack.enter_context(Worker(python, module, path=[HERE.parent]))
    listings = stack.enter_context(Worker(python, f"{module}:listings", path=[HERE.parent]))
    return [
        Part("concurrency", sweeps.count(peers=len(crowds.names)), partial(sweeps.measure_crowds, tracks=[crowds])),
        Part(
            "listing",
            sweeps.count_listings(peers=len(listings.names)),
            partial(sweeps.measure_listings, tracks=[listings]),
        ),
    ]


def plot(results: list[Path]) -> int:
    """Draw and tell the newest kept figure of each kind."""
    newest: dict[str, Any] = {}
    for path in results:
        kept = json.loads(path.read_text(encoding="utf-8"))
        newest |= {figure["key"]: {**figure, "at": kept["at"]} for figure in kept["figures"]}
    if not newest:
        print("nothing was measured yet; run `python -m bench` first", file=sys.stderr)
        return 1
    merged = RESULTS / "newest.txt"  # no result of its own
    merged.write_text(json.dumps({"figures": list(newest.values())}), encoding="utf-8")
    command = [str(environment("plots")), "-m", "bench.plots", str(merged), str(DOCS / "images")]
    subprocess.run(command, cwd=HERE.parent, check=True, stdout=sys.stderr)
    write_tables(newest, DOCS / "performance.md")
    return 0


def keep(figures: list[Figure], *, took_s: float, folder: Path = RESULTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / time.strftime("%Y%m%d-%H%M%S.json")
    path.write_text(json.dumps(document(figures, took_s=took_s), indent=2) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
