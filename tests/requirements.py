"""The manifest of requirements, and which tests say that they prove one."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

TESTS = Path(__file__).parent
MANIFEST = TESTS / "requirements.toml"
MOST_IDS = 3  # What a test proves is what makes it fail; nobody can say that of a long list.


class Requirement(NamedTuple):
    status: Literal["planned", "proved"]
    text: str


def load() -> dict[str, Requirement]:
    """Every requirement by its id."""
    with MANIFEST.open("rb") as file:
        items = tomllib.load(file)["items"]
    return {id_: Requirement(**item) for id_, item in items.items()}


@cache
def carried(folder: Path = TESTS) -> dict[str, list[str]]:
    """The tests that carry each id, read from the source: the answer is the same in every test process."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        if ".envs" in path.parts:  # packages that trials have installed
            continue
        for place, id_ in _carried_in(path, folder):
            found[id_].append(place)
    return dict(found)


def _carried_in(path: Path, folder: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if ".req(" not in text:
        return
    for name, marked in _marked_nodes(ast.parse(text, filename=str(path))):
        for id_ in _ids(marked, path):
            yield f"{path.relative_to(folder)}::{name}", id_


def crowded(folder: Path = TESTS) -> dict[str, list[str]]:
    """The tests that carry more than `MOST_IDS` ids, with those of their parameters and of their module."""
    ids: dict[str, set[str]] = defaultdict(set)
    for id_, places in carried(folder).items():
        for place in places:
            ids[place].add(id_)
    of_module = {place.partition("::")[0]: found for place, found in ids.items() if place.endswith("::pytestmark")}
    all_ids = {place: found | of_module.get(place.partition("::")[0], set()) for place, found in ids.items()}
    return {place: sorted(found) for place, found in all_ids.items() if len(found) > MOST_IDS}


def only_skipped(passed: Iterable[str], skipped: Iterable[str], folder: Path = TESTS) -> list[str]:
    """The ids whose tests were all skipped in a run, given by node ids: a test that did not run proves nothing."""
    ran = {place for node in passed for place in _places(node)}
    left = {place for node in skipped for place in _places(node)}
    files = {folder / place.partition("::")[0] for place in left}
    if not any(place in left for file in files if file.is_file() for place, _ in _carried_in(file, folder)):
        return []  # most often; reading all tests takes a second, for which whoever runs them waits
    carriers = {id_: set(tests) for id_, tests in carried(folder).items()}
    return sorted(id_ for id_, tests in carriers.items() if tests & left and not tests & ran)


def _places(node_id: str) -> Iterator[str]:
    """Where the mark of a test may stand: on itself, on its class or on its module."""
    path, *names = node_id.partition("[")[0].split("::")
    module = path.removeprefix(f"{TESTS.name}/")
    yield from (f"{module}::{name}" for name in (*names, "pytestmark"))


def _marked_nodes(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Where a mark takes effect: a decorator of a test or of its class, or a `pytestmark`."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(member for found in classes for member in found.body)]:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                yield from ((name, decorator) for decorator in node.decorator_list)
            case ast.ClassDef(name=name) if name.startswith("Test"):
                yield from ((name, decorator) for decorator in node.decorator_list)
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield "pytestmark", value


def _ids(marked: ast.expr, path: Path) -> Iterator[str]:
    for node in ast.walk(marked):
        match node:
            case ast.Call(func=ast.Attribute(attr="req", value=ast.Attribute(attr="mark")), args=args):
                yield from (_literal(arg, path) for arg in args)


def _literal(arg: ast.expr, path: Path) -> str:
    match arg:
        case ast.Constant(value=str(id_)):
            return id_
    raise ValueError(f"{path}:{arg.lineno}: a requirement id is written out, so that it can be found by reading")
