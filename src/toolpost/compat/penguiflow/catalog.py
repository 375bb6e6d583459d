"""`@tool`, NodeSpec and build_catalog: functions of a model and a context as tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

from pydantic import BaseModel, Field

from toolpost.catalog.code_target import code_target
from toolpost.compat.penguiflow.node import Node
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import SideEffects as SideEffect
from toolpost.contracts.spec import ToolSpec

__all__ = ["NodeSpec", "SideEffect", "ToolInputExample", "ToolLoadingMode", "build_catalog", "tool"]

_DECLARED = "__penguiflow_tool__"

Function = TypeVar("Function", bound=Callable[..., Any])
Examples = Sequence["ToolInputExample | Mapping[str, Any]"]


class ToolLoadingMode(StrEnum):
    """Whether a tool is offered immediately or only found by search."""

    ALWAYS = "always"
    DEFERRED = "deferred"


class ToolInputExample(BaseModel):
    """Arguments that show how a tool is called."""

    args: dict[str, Any]
    description: str | None = None
    tags: list[str] = Field(default_factory=list[str])


class PlannerAction(NamedTuple):
    """The call that an `arg_validator` judges."""

    next_node: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A tool: its description for a planner, its node, and the models of its arguments and results.

    Fulfills Toolpost's Protocol `Tool`.
    """

    node: Node
    name: str
    desc: str
    args_model: type[BaseModel]
    out_model: type[BaseModel]
    side_effects: SideEffect = "pure"
    tags: Sequence[str] = ()
    auth_scopes: Sequence[str] = ()
    cost_hint: str | None = None
    latency_hint_ms: int | None = None
    safety_notes: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loading_mode: ToolLoadingMode = ToolLoadingMode.ALWAYS
    examples: Sequence[ToolInputExample] = ()
    _spec: list[ToolSpec] = field(default_factory=list[ToolSpec], init=False, repr=False, compare=False)

    @property
    def spec(self) -> ToolSpec:
        """The specification by which Toolpost validates, permits and runs calls."""
        if not self._spec:
            self._spec.append(self._make_spec())
        return self._spec[0]

    def _make_spec(self) -> ToolSpec:
        schema = self.args_model.model_json_schema()
        if self.examples:
            schema = {**schema, "examples": [example.args for example in self.examples]}
        return ToolSpec(
            name=self.name,
            description=self.desc,
            input_schema=schema,
            output_schema=self.out_model.model_json_schema(mode="serialization"),
            side_effects=self.side_effects,
            cost_hint=self.cost_hint,
            latency_hint_ms=self.latency_hint_ms,
            timeout_s=self.node.policy.timeout_s,
            tags=tuple(self.tags),
            extra={
                **self.extra,
                "auth_scopes": list(self.auth_scopes),
                "safety_notes": self.safety_notes,
                "loading_mode": self.loading_mode.value,
            },
            target=code_target(self.node.func),
        )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; raises what its function raises."""
        started = now_ms()
        args = self.args_model.model_validate(params)
        if refused := self._refusal(args, params):
            raise ToolValidationError(refused, tool_name=self.name)
        result = self.out_model.model_validate(await self.node.func(args, context))
        return ToolResult.completed(result.model_dump(mode="json", by_alias=True), None, started_at=started)

    def _refusal(self, args: BaseModel, params: Mapping[str, Any]) -> str:
        """Return why the tool's own `arg_validator` refuses the arguments; empty if it does not."""
        validator: Any = self.extra.get("arg_validator")
        if validator is None:
            return ""
        try:
            verdict = validator(args, PlannerAction(self.name, params))
        except Exception as error:  # noqa: BLE001 - foreign code
            return f"arg_validator raised {type(error).__name__}: {error}"
        if verdict is None or verdict is True:
            return ""
        reason: object = cast("Mapping[str, Any]", verdict).get("error") if isinstance(verdict, Mapping) else verdict
        return reason if isinstance(reason, str) else "arg_validator rejected args"

    def to_tool_record(self) -> dict[str, Any]:
        """Return the tool as JSON data, for a prompt."""
        keys = ("name", "desc", "side_effects", "cost_hint", "latency_hint_ms", "safety_notes")
        return {
            **{key: getattr(self, key) for key in keys},
            "loading_mode": self.loading_mode.value,
            "tags": list(self.tags),
            "auth_scopes": list(self.auth_scopes),
            "args_schema": self.args_model.model_json_schema(),
            "out_schema": self.out_model.model_json_schema(),
            "extra": {key: value for key, value in self.extra.items() if not callable(value)},
            "examples": [example.model_dump() for example in self.examples],
        }


def tool(
    *,
    desc: str | None = None,
    side_effects: SideEffect = "pure",
    tags: Sequence[str] = (),
    auth_scopes: Sequence[str] = (),
    cost_hint: str | None = None,
    latency_hint_ms: int | None = None,
    safety_notes: str | None = None,
    arg_validation: Mapping[str, Any] | None = None,
    arg_validator: Callable[[Any, PlannerAction], Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    loading_mode: ToolLoadingMode | str | None = None,
    examples: Examples | Mapping[str, Any] = (),
) -> Callable[[Function], Function]:
    """Declare the metadata of a function for `build_catalog`; the function is unchanged.

    Undeclared side effects are `pure`: such a call can be retried and never needs approval.
    """
    more = {"arg_validation": arg_validation, "arg_validator": arg_validator}
    declared: dict[str, Any] = {
        "desc": desc,
        "side_effects": side_effects,
        "tags": tuple(dict.fromkeys(tags)),
        "auth_scopes": tuple(dict.fromkeys(auth_scopes)),
        "cost_hint": cost_hint,
        "latency_hint_ms": latency_hint_ms,
        "safety_notes": safety_notes,
        "extra": {**(extra or {}), **{key: value for key, value in more.items() if value is not None}},
        "loading_mode": None if loading_mode is None else ToolLoadingMode(loading_mode),
        "examples": _read_examples(examples),
    }

    def declare(fn: Function) -> Function:
        setattr(fn, _DECLARED, declared)
        return fn

    return declare


def build_catalog(
    nodes: Iterable[Node | Callable[..., Any]],
    registry: ModelRegistry,
    *,
    default_loading_mode: ToolLoadingMode | str | None = None,
) -> list[NodeSpec]:
    """Build the tools of nodes or functions.

    Their models are those that `registry` has under their name; else those of the annotations, which are registered.
    Tools that declare no `loading_mode` get the default, else `always`. A planner leaves deferred tools out of its
    prompts until a search finds them.
    """
    default = ToolLoadingMode(default_loading_mode or ToolLoadingMode.ALWAYS)
    return [_node_spec(each if isinstance(each, Node) else Node(each), registry, default) for each in nodes]


def _node_spec(node: Node, registry: ModelRegistry, loading_mode: ToolLoadingMode) -> NodeSpec:
    if not registry.has(node.name):
        registry.register(node.name, *_annotated_models(node))
    args_model, out_model = registry.models(node.name)
    declared: dict[str, Any] = dict(getattr(node.func, _DECLARED, {}))
    desc = declared.pop("desc", None) or inspect.getdoc(node.func) or node.name
    declared["loading_mode"] = declared.get("loading_mode") or loading_mode
    return NodeSpec(node, node.name, desc, args_model, out_model, **declared)


def _annotated_models(node: Node) -> tuple[type[BaseModel], type[BaseModel]]:
    hints = get_type_hints(node.func)
    first = next(iter(inspect.signature(node.func).parameters))
    models: list[Any] = [hints.get(first), hints.get("return")]
    if not all(isinstance(model, type) and issubclass(model, BaseModel) for model in models):
        raise TypeError(
            f"Node {node.name!r} has no models; annotate its first parameter and its result with pydantic models, "
            f"or call registry.register({node.name!r}, args_model, out_model)"
        )
    args_model, out_model = models
    return args_model, out_model


def _read_examples(value: Examples | Mapping[str, Any]) -> tuple[ToolInputExample, ...]:
    examples = [value] if isinstance(value, Mapping) else value
    return tuple(ToolInputExample.model_validate(example) for example in examples)
