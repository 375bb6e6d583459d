"""A JMESPath interpreter that bounds its steps and the size of every value that it creates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from jmespath import Options
from jmespath.visitor import TreeInterpreter

from toolpost.schema.json_values import is_array, is_object

MAX_STEPS = 100_000
MAX_BYTES = 8_000_000

_CREATING = frozenset(
    {
        *("multi_select_list", "multi_select_dict", "projection", "filter_projection", "value_projection"),
        *("flatten", "slice", "function_expression"),
    }
)
# Functions and comparisons handle their arguments in C, without visits. Data counts as steps there, by how long it
# takes: 128 bytes of a comparison or an encoding, 8 items of a list.
_BYTES_PER_STEP_BITS = 7
_ITEMS_PER_STEP_BITS = 3
_STEPS_PER_FUNCTION = 2  # checking its arguments
_LITERAL_BYTES = 5
_SIZED = (str, list, dict)
_EQUALITY = frozenset({"eq", "ne"})


class ExpressionLimitError(Exception):
    """An expression that took too many steps, or created too large a value."""


class ExpressionBudget:
    """The steps and bytes that are left for an expression, and the sizes of the values that were measured.

    A value may contain the same list many times: `[@, @] | [@, @]` has four items and two lists. Each list is measured
    once, so that measuring takes as long as creating, regardless of the size.
    """

    __slots__ = ("_sizes", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self._sizes: dict[int, tuple[int, Any]] = {}  # with the value, so that its id() is not reused

    def spend(self, steps: int) -> None:
        """Take steps; raise ExpressionLimitError if too few are left."""
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionLimitError(f"needs more than {MAX_STEPS:,} steps")

    def admit(self, value: Any) -> int:
        """Return the size of a created value as JSON; raise ExpressionLimitError if it is too large."""
        size = self._created_size(value)
        if size > MAX_BYTES:
            raise ExpressionLimitError(f"creates a value of more than {MAX_BYTES:,} bytes")
        return size

    def spend_on(self, value: Any) -> None:
        """Take the steps for a value that a function or a comparison processes."""
        if is_array(value):
            self.spend(len(value) >> _ITEMS_PER_STEP_BITS)
        self.spend(self.size(value) >> _BYTES_PER_STEP_BITS)

    def size(self, value: Any) -> int:
        """Return about how many bytes a value has as JSON."""
        if isinstance(value, str):
            return len(value) + 2
        if isinstance(value, int):
            return _LITERAL_BYTES + value.bit_length() // 3
        if not is_array(value) and not is_object(value):
            return _LITERAL_BYTES
        known = self._sizes.get(id(value))
        if known is not None:
            return known[0]
        # Not created by the expression, and at most as large as a message.
        try:
            size = len(orjson.dumps(value))
        except TypeError:  # such as an integer of more than 64 bits
            return self._created_size(value)
        self._sizes[id(value)] = (size, value)
        return size

    def _created_size(self, value: Any) -> int:
        if not is_array(value) and not is_object(value):
            return self.size(value)
        if id(value) in self._sizes:
            return self._sizes[id(value)][0]
        self.spend(len(value) >> _ITEMS_PER_STEP_BITS)
        names = sum(len(name) + 3 for name in value) if is_object(value) else 0
        items: Iterable[Any] = value.values() if is_object(value) else value
        size = 2 + len(value) + names + sum(map(self.size, items))
        self._sizes[id(value)] = (size, value)
        return size


class BoundedInterpreter(TreeInterpreter):
    """Interpreter with a budget; it raises ExpressionLimitError if the budget is exceeded."""

    def __init__(self, options: Options, budget: ExpressionBudget) -> None:
        super().__init__(options)
        self._budget = budget

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Visit a node, which is one step, and measure the value that it creates; `root()` creates none."""
        budget = self._budget
        budget.steps -= 1
        if budget.steps < 0:
            budget.spend(0)
        value = super().visit(node, *args, **kwargs)
        if node["type"] in _CREATING and node.get("value") != "root":
            budget.admit(value)
        return value

    def visit_comparator(self, node: Any, value: Any) -> Any:
        """Compare two values; their size counts as steps if both are containers or strings."""
        left: Any = self.visit(node["children"][0], value)
        right: Any = self.visit(node["children"][1], value)
        if left.__class__ in _SIZED and left.__class__ is right.__class__:
            self._budget.spend_on(left)
        name: str = node["value"]
        if name not in _EQUALITY and not _are_ordered(left, right):
            return None
        return self.COMPARATOR_FUNC[name](left, right)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        """Call a function; the size of its arguments counts as steps."""
        self._budget.spend(_STEPS_PER_FUNCTION)
        arguments = [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            self._budget.spend_on(argument)
        # As literals, because the arguments are known now, and functions are looked up and checked by the library.
        literals: Any = [{"type": "literal", "value": known, "children": []} for known in arguments]
        return super().visit_function_expression(
            {"type": node["type"], "value": node["value"], "children": literals}, value
        )


def _are_ordered(left: Any, right: Any) -> bool:
    """Return whether two values are both numbers or both strings; others have no order in JMESPath."""
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str)
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right))
