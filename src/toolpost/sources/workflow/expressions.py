"""Expressions of workflows: JMESPath over the inputs, ports and earlier steps, and templates that contain them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError, JMESPathTypeError

from toolpost.contracts.nearest_names import nearest
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.workflow.bounded_interpreter import (
    MAX_BYTES,
    BoundedInterpreter,
    ExpressionBudget,
    ExpressionLimitError,
)

# JMESPath rather than CEL: it has no dependencies, reads Python values in place instead of copying all of them for
# every evaluation, always ends, and its parsed form shows which steps an expression refers to. It can still double a
# value with every few characters, so the interpreter has a budget.

_ROOTS = ("inputs", "steps", "ports", "item", "index")
_NAMED_ROOTS = frozenset({"steps", "ports"})
_LOOP_ROOTS = frozenset({"item", "index"})
_OPEN, _CLOSE = "${{", "}}"
_SAME_SCOPE = frozenset(
    {
        *("multi_select_list", "multi_select_dict", "key_val_pair", "function_expression", "comparator"),
        *("and_expression", "or_expression", "not_expression"),
    }
)
_FIRST_IN_SCOPE = frozenset(
    {
        *("subexpression", "index_expression", "projection", "value_projection", "filter_projection"),
        *("flatten", "pipe"),
    }
)
_MAX_CHARACTERS = 10_000
_MAX_CLOSINGS = 20  # places at which an expression of a template may end; each is one attempt to parse it
_SHOWN = 200
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


class ExpressionError(ValueError):
    """An invalid expression, or one that failed on its data; `code` is the error code of the failing call."""

    def __init__(self, message: str, *, code: str = "step_failed") -> None:
        super().__init__(message)
        self.code = code


class Reference(NamedTuple):
    """Reference of an expression: a step or a port by name, or the inputs, the item or its index."""

    root: str
    name: str = ""


class _Functions(functions.Functions):
    """The functions of JMESPath, and `root()` for values outside of a filtered list."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope

    @functions.signature()
    def _func_root(self) -> Mapping[str, Any]:
        return self._scope


class Expression:
    """One JMESPath expression; raise ExpressionError if it is invalid or has an unknown root."""

    __slots__ = ("_compiled", "_path", "references", "text")

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > _MAX_CHARACTERS:
            raise ExpressionError(f"{self._shown} has more than {_MAX_CHARACTERS:,} characters; use several steps")
        try:
            self._compiled = jmespath.compile(self.text)
        except JMESPathError as error:
            raise ExpressionError(f"{self.text!r} is not JMESPath: {_reason(error)}") from error
        except RecursionError as error:
            raise ExpressionError(f"{self._shown} is nested too deeply; use several steps") from error
        # Most expressions are paths of names. Without the interpreter they take 0.3 µs, not 3.6 µs (measured 2026-11).
        self._path = self.text.split(".") if _IDENTIFIER.fullmatch(self.text) else None
        parsed = self._compiled.parsed
        self.references = frozenset([*_references(parsed, self.text), *_references_by_root(parsed, self.text)])

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the value for these inputs, ports and steps.

        Raise ExpressionError if a function rejects its data, or if the expression exceeds its budget.
        """
        return self.evaluate_within(ExpressionBudget(), scope)

    def evaluate_within(self, budget: ExpressionBudget, scope: Mapping[str, Any]) -> Any:
        """Return the value; take the steps from a budget that other expressions share."""
        if self._path is not None:
            value: Any = scope
            for name in self._path:
                value = value.get(name) if is_object(value) else None
            return value
        options = jmespath.Options(custom_functions=_Functions(scope))
        try:
            return BoundedInterpreter(options, budget).visit(self._compiled.parsed, scope)
        except JMESPathError as error:
            raise ExpressionError(f"{self._shown} failed: {_reason(error)}") from error
        except ExpressionLimitError as error:
            raise self.limit_error(error) from error
        except RecursionError as error:
            raise self.limit_error("creates a value that is nested too deeply") from error

    def limit_error(self, reason: object) -> ExpressionError:
        message = f"{self._shown} {reason}; select less, or let a tool compute it"
        return ExpressionError(message, code="expression_limit")

    @property
    def _shown(self) -> str:
        return repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…")


def is_true(value: Any) -> bool:
    """Return whether a value is true in JMESPath: not null, false, or empty."""
    return not (value is None or value is False or value in ("", [], {}))


class Template:
    """A JSON value with `${{ expression }}` in its strings; a string that is one expression becomes its value."""

    __slots__ = ("_is_one", "_render", "references")

    def __init__(self, value: Any) -> None:
        expressions: list[Expression] = []
        self._render = _compile(value, expressions)
        self._is_one = len(expressions) <= 1
        self.references = frozenset(reference for one in expressions for reference in one.references)

    def render(self, scope: Mapping[str, Any]) -> Any:
        """Return the value with every expression evaluated; all of them share one budget."""
        return self._render(Expression.evaluate if self._is_one else _SharedBudget().evaluate, scope)


class _SharedBudget:
    """The budget of a template: all its expressions together have the size limit of one value."""

    def __init__(self) -> None:
        self._budget, self._bytes = ExpressionBudget(), 0

    def evaluate(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        value = expression.evaluate_within(self._budget, scope)
        self._bytes += self._budget.size(value)
        if self._bytes > MAX_BYTES:
            raise expression.limit_error(f"and those before it have more than {MAX_BYTES:,} bytes together")
        return value


_Evaluate: TypeAlias = "Callable[[Expression, Mapping[str, Any]], Any]"


def _compile(value: Any, expressions: list[Expression]) -> Callable[[_Evaluate, Mapping[str, Any]], Any]:
    """Return a function that renders a value; collect the expressions in it."""
    before = len(expressions)
    if is_object(value):
        members = {name: _compile(member, expressions) for name, member in value.items()}
        if len(expressions) > before:
            return lambda evaluate, scope: {name: render(evaluate, scope) for name, render in members.items()}
    elif is_array(value):
        items = [_compile(item, expressions) for item in value]
        if len(expressions) > before:
            return lambda evaluate, scope: [render(evaluate, scope) for render in items]
    elif isinstance(value, str) and _OPEN in value:
        parts = list(_split(value))
        own = [part for part in parts if isinstance(part, Expression)]
        expressions += own
        if len(parts) == len(own) == 1:
            only = own[0]
            return lambda evaluate, scope: evaluate(only, scope)
        return lambda evaluate, scope: "".join(
            part if isinstance(part, str) else _as_text(evaluate(part, scope)) for part in parts
        )
    return lambda _evaluate, _scope: value


def _split(text: str) -> Iterator[str | Expression]:
    """Yield the strings and expressions of a template; an expression may contain braces."""
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        if start > end:
            yield text[end:start]
        if text.find(_CLOSE, start) < 0:
            raise ExpressionError(f"{text!r} opens an expression with ${{{{ and does not close it with }}}}")
        expression, close = _parse_beginning(text, start + len(_OPEN))
        yield expression
        end = close + len(_CLOSE)
    if end < len(text):
        yield text[end:]


def _parse_beginning(text: str, start: int) -> tuple[Expression, int]:
    """Return the shortest valid expression at a position, and its end; raise the first error if there is none."""
    errors: list[ExpressionError] = []
    close = text.find(_CLOSE, start)
    while close >= 0 and len(errors) < _MAX_CLOSINGS:
        try:
            return Expression(text[start:close]), close
        except ExpressionError as error:
            errors.append(error)
        close = text.find(_CLOSE, close + 1)
    raise errors[0]


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _reason(error: JMESPathError) -> str:
    if isinstance(error, JMESPathTypeError):  # its message contains the value, regardless of its size
        expected = " or ".join(error.expected_types)
        return f"{error.function_name}() takes {expected}, not {error.actual_type}"
    return " ".join(str(error).split())


def _references(node: Mapping[str, Any], text: str) -> Iterator[Reference]:
    """Yield the references of an expression.

    Within a filter or after a `|`, names refer to the data there; only `root()` leads back.
    """
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield _root_reference(node["value"], None, text)
    elif kind == "current":
        raise ExpressionError(f"{text!r} uses @ for everything; begin with {', '.join(_ROOTS)}")
    elif kind == "subexpression" and children[0]["type"] == "field":
        yield _root_reference(children[0]["value"], children[1], text)
    elif kind in _FIRST_IN_SCOPE:
        yield from _references(children[0], text)
    elif kind in _SAME_SCOPE:
        for child in children:
            yield from _references(child, text)


def _references_by_root(node: Mapping[str, Any], text: str) -> Iterator[Reference]:
    """Yield the references after `root()` anywhere in an expression."""
    children = [child for child in node["children"] if is_object(child)]  # those of a slice are numbers
    if node["type"] == "subexpression" and _is_root_call(children[0]) and children[1]["type"] == "field":
        yield _root_reference(children[1]["value"], children[2] if len(children) > 2 else None, text)
    for child in children:
        yield from _references_by_root(child, text)


def _is_root_call(node: Mapping[str, Any]) -> bool:
    return bool(node["type"] == "function_expression" and node["value"] == "root")


def _root_reference(name: str, after: Mapping[str, Any] | None, text: str) -> Reference:
    if name not in _ROOTS:
        near = nearest(name, _ROOTS)
        hint = f"; did you mean {near}?" if near else ""
        raise ExpressionError(f"{text!r} begins with {name!r}, not with {', '.join(_ROOTS)}{hint}")
    if name not in _NAMED_ROOTS:
        return Reference(name)
    of = _leftmost(after)
    if of is None:
        raise ExpressionError(f"{text!r} must name one of the {name}: {name}.NAME (and parentheses after a !)")
    return Reference(name, of)


def _leftmost(node: Mapping[str, Any] | None) -> str | None:
    while node is not None and node["type"] != "field":
        node = node["children"][0] if node["type"] in _FIRST_IN_SCOPE else None
    return None if node is None else str(node["value"])


def uses_loop(references: frozenset[Reference]) -> bool:
    """Return whether references include the item or index of a loop."""
    return any(reference.root in _LOOP_ROOTS for reference in references)
