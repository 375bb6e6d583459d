"""Figures of search in the catalog: what is found, and how long it takes beside a bare bm25s."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from msgspec.structs import replace

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick
from bench.core.main import Part
from bench.search.corpus import Query, queries, specs
from toolpost.catalog.search import SearchIndex
from toolpost.catalog.search_vectors import open_vectors
from toolpost.contracts.spec import ToolSpec

KINDS = ("lexical", "paraphrase", "unseen", "intent")
DEPTHS = (1, 5, 10)
GOAL = 0.85
RATIO = 3.0
SIZE = 5000
ROUNDS = 3


def parts() -> list[Part]:
    """The figures as parts of a run."""
    return [Part("search", 3, _recall), Part("search speed", ROUNDS + 1, _speed)]


def _indexed(tools: Sequence[ToolSpec], *, meaning: bool) -> SearchIndex:
    index = SearchIndex(open_vectors() if meaning else None)
    index.change([], tools)
    return index


def _recall(tick: Tick) -> Figure:
    tools, whole = specs()
    tick("tools")
    asked = queries(tools)
    rows: list[Row] = []
    fused: dict[str, float] = {}
    for name, meaning in (("by words", False), ("by words and meaning", True)):
        index = _indexed(tools, meaning=meaning)
        for kind in KINDS:
            found = _recalls(index, [query for query in asked if query.kind == kind])
            rows.append({"engine": name, "kind": kind, **found})
            if meaning:
                fused[kind] = found["recall_5"]
        tick(name)
    documents = "and real documents" if whole else "without real documents"
    return Figure(
        key="search_recall",
        title=f"Search in {len(tools):,} real tools ({documents})",
        columns=(
            Column("engine", "ranked"),
            Column("kind", "queries"),
            Column("count", "number", 0),
            *(Column(f"recall_{depth}", f"recall@{depth}", 3) for depth in DEPTHS),
        ),
        rows=rows,
        targets=[
            Target("recall@5 on paraphrases, with the extra", fused["paraphrase"], "at least", GOAL),
            Target("recall@5 on unseen paraphrases, with the extra", fused["unseen"], "at least", GOAL),
        ],
        notes=("The weights were chosen by the paraphrases; `unseen` are others, for tools drawn at random.",),
    )


def _recalls(index: SearchIndex, asked: Sequence[Query]) -> Row:
    hits = dict.fromkeys(DEPTHS, 0)
    for query in asked:
        found = [spec.name for spec in index.find(query.text, max(DEPTHS))]
        for depth in DEPTHS:
            hits[depth] += not query.right.isdisjoint(found[:depth])
    return {"count": len(asked), **{f"recall_{depth}": hits[depth] / max(1, len(asked)) for depth in DEPTHS}}


def _speed(tick: Tick) -> Figure:
    tools, _ = specs()
    asked = [query.text for query in queries(tools)]
    many = _copies(tools, SIZE)
    tick("tools")
    rows: list[Row] = []
    engines: dict[str, Callable[[str], object]] = {}
    for name, build in (("bm25s, bare", _bm25s), ("by words", _words), ("by words and meaning", _meaning)):
        began = time.process_time()
        engines[name], change = build(many)
        built = time.process_time() - began
        rows.append({"engine": name, "index_ms": built * 1e3, "change_ms": _changed(change, many)})
    took = {name: list[float]() for name in engines}
    for number in range(ROUNDS):
        for text in asked:
            for name, find in engines.items():
                began = time.perf_counter()
                find(text)
                took[name].append(time.perf_counter() - began)
        tick(f"round {number + 1}")
    for row in rows:
        row["query_us"] = median(took[row["engine"]]) * 1e6
        row["ratio"] = row["query_us"] / (median(took["bm25s, bare"]) * 1e6)
    return Figure(
        key="search_speed",
        title=f"A query in {len(many):,} tools",
        columns=(
            Column("engine", "ranked"),
            Column("index_ms", "index ms CPU", 0),
            Column("change_ms", "one tool changes ms", 2),
            Column("query_us", "query µs", 0),
            Column("ratio", "x bm25s", 2),
        ),
        rows=rows,
        targets=[Target(f"{row['engine']} / bare bm25s", row["ratio"], "at most", RATIO, "x") for row in rows[1:]],
        notes=("Medians of wall time, the engines in turn for each query; a bare bm25s indexes everything anew.",),
    )


def _copies(tools: Sequence[ToolSpec], size: int) -> list[ToolSpec]:
    """So many tools: the real ones, and copies of them under other sources."""
    return [
        spec if turn == 0 else replace(spec, name=f"copy{turn}{spec.name}", source=f"copy{turn}{spec.source}")
        for number in range(size)
        for turn, spec in [(number // len(tools), tools[number % len(tools)])]
    ]


Engine = tuple[Callable[[str], object], Callable[[Sequence[ToolSpec]], object]]


def _words(tools: Sequence[ToolSpec]) -> Engine:
    return _own(_indexed(tools, meaning=False))


def _meaning(tools: Sequence[ToolSpec]) -> Engine:
    return _own(_indexed(tools, meaning=True))


def _own(index: SearchIndex) -> Engine:
    return (lambda text: index.find(text, 10)), (lambda tools: index.change(*index.difference(tools)))


def _bm25s(tools: Sequence[ToolSpec]) -> Engine:
    import logging

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    import bm25s

    def index(these: Sequence[ToolSpec]) -> Any:
        texts = [f"{spec.name} {spec.description}" for spec in these]
        made = bm25s.BM25()
        made.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
        return made

    engine = index(tools)

    def find(text: str) -> object:
        return engine.retrieve(bm25s.tokenize(text, show_progress=False), k=10, show_progress=False)

    return find, index


def _changed(change: Callable[[Sequence[ToolSpec]], object], tools: Sequence[ToolSpec]) -> float:
    began = time.perf_counter()
    change([*tools[:-1], replace(tools[-1], description="Feeds a parrot.")])
    return (time.perf_counter() - began) * 1e3
