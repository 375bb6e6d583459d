"""Modules, functions and classes stay small enough to be read in one go."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parent.parent / "src"

MODULE_LINES = 400
FUNCTION_LINES = 40
CLASS_LINES = 200
CLASS_METHODS = 15

# "toolpost.module:Name" (or "toolpost.module" for a whole module), and why it may be larger.
EXCEPTIONS: dict[str, str] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Excess(NamedTuple):
    name: str
    what: str


def test_nothing_outgrows_its_limit() -> None:
    excesses = [f"{name}: {what}" for name, what in _excesses(SRC) if name not in EXCEPTIONS]

    assert excesses == []


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    too_large = {excess.name for excess in _excesses(SRC)}

    assert sorted(set(EXCEPTIONS) - too_large) == []
    assert [name for name, reason in EXCEPTIONS.items() if not reason.strip()] == []


def test_each_limit_is_noticed(tmp_path: Path) -> None:
    body = "\n".join(f"    x{n} = 0" for n in range(FUNCTION_LINES))
    methods = "\n".join(f"    def m{n}(self): ..." for n in range(CLASS_METHODS + 1))
    filler = "\n" * CLASS_LINES
    (tmp_path / "large.py").write_text(
        f"def long():\n{body}\nclass Wide:\n{methods}\nclass Tall:\n    x = 0\n{filler}\n    y = 0\n"
        + "\n" * MODULE_LINES
    )

    assert {(excess.name, excess.what.split()[1]) for excess in _excesses(tmp_path)} == {
        ("large", "lines"),
        ("large:long", "lines"),
        ("large:Wide", "methods"),
        ("large:Tall", "lines"),
    }


@cache
def _excesses(root: Path) -> tuple[Excess, ...]:
    return tuple(_found(root))


def _found(root: Path) -> Iterator[Excess]:
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        source = path.read_text(encoding="utf-8")
        lines = len(source.splitlines())
        if lines > MODULE_LINES:
            yield Excess(module, f"{lines} lines (at most {MODULE_LINES})")
        for name, node in _definitions(ast.parse(source), prefix=""):
            yield from (Excess(f"{module}:{name}", what) for what in _too_much(node))


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function | ast.ClassDef):
            yield prefix + node.name, node
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)


def _too_much(node: Function | ast.ClassDef) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    limit = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
    if lines > limit:
        yield f"{lines} lines (at most {limit})"
    if isinstance(node, ast.ClassDef) and (methods := _methods(node)) > CLASS_METHODS:
        yield f"{methods} methods (at most {CLASS_METHODS})"


def _methods(node: ast.ClassDef) -> int:
    """Methods by name: the overloads of one, or the getter and setter of a property, are one."""
    return len({child.name for child in node.body if isinstance(child, Function)})
