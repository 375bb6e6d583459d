"""What a tool is: the frozen record that describes it to people, models and the pipeline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.questions import CallPreview

    Preview = Callable[[dict[str, Any], ToolContext], Awaitable[CallPreview | None]]

SideEffects = Literal["pure", "read", "write", "external", "stateful"]
ReplayClass = Literal["pure", "idempotent", "keyed", "unsafe"]
InputValidation = Literal["strict", "lenient", "off"]
JsonSchema = dict[str, Any]


class ToolCategory(StrEnum):
    """The shelf a tool stands on."""

    SYSTEM = "system"
    FILE = "file"
    NETWORK = "network"
    DATA = "data"
    MEMORY = "memory"
    CODE = "code"
    MCP = "mcp"
    CUSTOM = "custom"


class SafetyProfile(NamedTuple):
    """What a call may touch; `destructive=None` means that nobody has said."""

    network: bool = False
    file: bool = False
    destructive: bool | None = False
    open_world: bool = False


class ToolTarget:
    """Where the calls of a tool go: what a person reads of it, and what an approval is bound to.

    `summary` is one line, such as `POST https://api.example.com/orders/{id}`. `detail` is JSON of all else that
    decides what a call does; a function makes it when it is first needed. Both may hold what the configuration
    holds: show or store the target only as `masked` gives it.
    """

    __slots__ = ("_detail", "_digest", "kind", "summary")

    def __init__(self, kind: str, summary: str, detail: str | Callable[[], str] = "") -> None:
        self.kind = kind
        self.summary = summary
        self._detail = detail
        self._digest: str | None = None

    @classmethod
    def of(cls, kind: str, summary: str, **facts: Any) -> ToolTarget:
        """A target with these facts as its detail."""
        return cls(kind, summary, json.dumps(facts, sort_keys=True, default=str))

    @property
    def detail(self) -> str:
        """What decides about a call beside the summary."""
        if not isinstance(self._detail, str):
            self._detail = self._detail()
        return self._detail

    @property
    def digest(self) -> str:
        """SHA-256 of kind, summary and detail."""
        if self._digest is None:
            whole = json.dumps([self.kind, self.summary, self.detail])
            self._digest = hashlib.sha256(whole.encode()).hexdigest()
        return self._digest

    def masked(self, mask: Callable[[str], str]) -> ToolTarget:
        """The target with every secret that `mask` knows taken out, from its digest too."""
        return ToolTarget(self.kind, mask(self.summary), mask(self.detail))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolTarget) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.kind, self.summary))

    def __repr__(self) -> str:
        return f"ToolTarget({self.kind!r})"


_DERIVED: Any = None  # left out: worked out from the side effects, so that readers never see it


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool's contract.

    `input_schema` and `output_schema` are kept as they came: they are what a model
    sees and what calls are validated against. Where the input schema is too large for a
    model, `model_schema` is a true but shorter view of it. `replay` and `safety` follow
    from the side effects unless they are given; what a tool without a source declares is its
    author's word, and not unknown. `host_argument` names the argument that
    holds the URL a call goes to: breaker and retry budget are then per host and tenant.
    `target` is where calls go; a source fills it in. `origin` names the source whose
    words the tool's texts and results are; it is empty for code of the operator's own.
    """

    name: str
    description: str = ""
    category: ToolCategory = ToolCategory.CUSTOM
    input_schema: JsonSchema = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: JsonSchema | None = None
    model_schema: JsonSchema | None = None
    side_effects: SideEffects = "write"
    safety: SafetyProfile = _DERIVED
    replay: ReplayClass = _DERIVED
    cost_hint: str | None = None
    latency_hint_ms: int | None = None
    timeout_s: float | None = None
    tags: tuple[str, ...] = ()
    version: str = "1"
    source: str = ""
    origin: str = ""
    validate_inputs: InputValidation = "strict"
    cache_ttl_s: float | None = None
    max_concurrency: int | None = None
    host_argument: str | None = None
    deprecated: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: ToolTarget | None = None

    def __post_init__(self) -> None:
        if cast("SafetyProfile | None", self.safety) is None:
            external = self.side_effects == "external"
            destructive = destructive_of(self.side_effects, None) if self.source else False
            derived = SafetyProfile(external, False, destructive, external)  # noqa: FBT003 - in the record's order
            object.__setattr__(self, "safety", derived)
        if cast("ReplayClass | None", self.replay) is None:
            object.__setattr__(self, "replay", replay_of(self.side_effects))

    @property
    def has_effects(self) -> bool:
        """Whether a call leaves a trace outside; such calls are journaled before they run."""
        return self.side_effects not in ("pure", "read")

    @property
    def is_helper(self) -> bool:
        """Whether a source adds the tool for what it has beside tools, such as an MCP server's resources."""
        return self.extra.get("helper") is True

    @property
    def leaves_machine(self) -> bool:
        """Whether a call reaches beyond this machine."""
        return self.side_effects == "external" or self.safety.network

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, for listings."""
        return {
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "category": self.category.value,
            "side_effects": self.side_effects,
            "replay": self.replay,
            "safety": self.safety._asdict(),
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "tags": list(self.tags),
            "version": self.version,
            "timeout_s": self.timeout_s,
            "cost_hint": self.cost_hint,
            "latency_hint_ms": self.latency_hint_ms,
            "deprecated": self.deprecated,
        }


def replay_of(side_effects: SideEffects, *, idempotent: bool = False) -> ReplayClass:
    """The replay class that a declaration of side effects amounts to."""
    if side_effects == "pure":
        return "pure"
    return "idempotent" if side_effects == "read" or idempotent else "unsafe"


def destructive_of(side_effects: SideEffects, destructive: bool | None) -> bool | None:  # noqa: FBT001 - a tri-state value, not a switch
    """Whether a source's call destroys; of what leaves the machine undeclared, nobody knows (None)."""
    if destructive is not None:
        return destructive
    return None if side_effects == "external" else False


class ToolDefinition(NamedTuple):
    """A tool as a model's function-calling interface wants it."""

    name: str
    description: str
    parameters: JsonSchema

    def to_openai(self) -> dict[str, Any]:
        """The definition in the shape of OpenAI's chat completions."""
        return {"type": "function", "function": self._asdict()}

    def to_openai_responses(self) -> dict[str, Any]:
        """The definition in the shape of OpenAI's responses; arguments are checked here, not by its strict mode."""
        return {"type": "function", **self._asdict(), "strict": False}

    def to_anthropic(self) -> dict[str, Any]:
        """The definition in the shape of Anthropic's messages."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}


@runtime_checkable
class PreviewingTool(Protocol):
    """A tool that can say of each call what it would do."""

    async def preview(self, params: dict[str, Any], context: ToolContext) -> CallPreview | None:
        """What the call would do; None is what the tool declares."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A capability with a contract; built-in, custom and external tools all have this shape."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool is."""
        ...

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it; a failure is a result with `success=False`, or an error raised."""
        ...
