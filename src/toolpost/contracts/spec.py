"""The specification of a tool, and the Protocol of a tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct, field
from msgspec.structs import force_setattr

# A program that only lists tools does not load the types of calls.
if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.questions import CallPreview

Preview: TypeAlias = "Callable[[dict[str, Any], ToolContext], Awaitable[CallPreview | None]]"

SideEffects = Literal["pure", "read", "write", "external", "stateful"]
ReplayClass = Literal["pure", "idempotent", "keyed", "unsafe"]
InputValidation = Literal["strict", "lenient", "off"]
JsonSchema = dict[str, Any]
AGENT_TARGET = "agent"
"""Kind of the target of tools that act inside an agent."""
_DERIVED: Any = None  # default of fields that __post_init__ derives from the side effects


class ToolCategory(StrEnum):
    """Categories of tools."""

    SYSTEM = "system"
    FILE = "file"
    NETWORK = "network"
    DATA = "data"
    MEMORY = "memory"
    CODE = "code"
    MCP = "mcp"
    CUSTOM = "custom"


class SafetyProfile(NamedTuple):
    """The resources that a call may use; `destructive=None` means unknown."""

    network: bool = False
    file: bool = False
    destructive: bool | None = False
    open_world: bool = False


class ToolTarget:
    """The destination of a tool's calls, shown to approvers and part of the hash that binds an approval.

    `summary` is one line, such as `POST https://api.example.com/orders/{id}`. `detail` is JSON with everything else
    that determines a call, or a function that builds it on first use. Both may contain secrets of the configuration:
    show or store only the result of `masked`.
    """

    __slots__ = ("_detail", "_digest", "kind", "summary")

    def __init__(self, kind: str, summary: str, detail: str | Callable[[], str] = "") -> None:
        self.kind = kind
        self.summary = summary
        self._detail = detail
        self._digest: str | None = None

    @classmethod
    def of(cls, kind: str, summary: str, **facts: Any) -> ToolTarget:
        """Build a target with these facts as its detail."""
        return cls(kind, summary, json.dumps(facts, sort_keys=True, default=str))

    @property
    def detail(self) -> str:
        """Return the facts beside the summary that determine a call, as JSON."""
        if not isinstance(self._detail, str):
            self._detail = self._detail()
        return self._detail

    @property
    def digest(self) -> str:
        """Return the SHA-256 of kind, summary and detail."""
        if self._digest is None:
            whole = json.dumps([self.kind, self.summary, self.detail])
            self._digest = hashlib.sha256(whole.encode()).hexdigest()
        return self._digest

    def masked(self, mask: Callable[[str], str]) -> ToolTarget:
        """Return the target with its secrets masked, also in the digest."""
        return ToolTarget(self.kind, mask(self.summary), mask(self.detail))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolTarget) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.kind, self.summary))

    def __repr__(self) -> str:
        return f"ToolTarget({self.kind!r})"


class ToolSpec(Struct, frozen=True, kw_only=True):
    """The specification of one tool.

    `input_schema` and `output_schema` are unchanged: calls are validated against them, and models see them. If the
    input schema is too large for a model, `model_schema` is a shortened schema. `replay` and `safety` are derived from
    the side effects by default; only tools of a source may have unknown safety. `host_argument` names the argument with
    the URL of a call: breaker and retry budget are then per host and tenant. `target` is the destination of calls, set
    by the source. With `resumes`, all effects of a call are those of nested calls, and it may run again from its start
    after a crash. `origin` names the source that wrote the tool's texts and results; it is empty for the
    operator's own code. With `third_party`, the results are untrusted content, such as web pages: a declared
    `open_world` sets it, a derived one does not.
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
    third_party: bool = _DERIVED
    resumes: bool = False
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
        if cast("bool | None", self.third_party) is None:
            declared = cast("SafetyProfile | None", self.safety)
            force_setattr(self, "third_party", declared is not None and declared.open_world)
        if cast("SafetyProfile | None", self.safety) is None:
            external = self.side_effects == "external"
            destructive = destructive_of(self.side_effects, None) if self.source else False
            derived = SafetyProfile(external, False, destructive, external)  # noqa: FBT003 - in the record's order
            force_setattr(self, "safety", derived)
        if cast("ReplayClass | None", self.replay) is None:
            force_setattr(self, "replay", replay_of(self.side_effects))

    @property
    def has_effects(self) -> bool:
        """Whether a call has side effects; such calls are journaled before they run."""
        return self.side_effects not in ("pure", "read")

    @property
    def is_helper(self) -> bool:
        """Whether a source added the tool for its resources or prompts."""
        return self.extra.get("helper") is True

    @property
    def is_deferred(self) -> bool:
        """Whether a planner omits the tool from its prompts until a search finds it."""
        return self.extra.get("loading_mode") == "deferred"

    @property
    def leaves_machine(self) -> bool:
        """Whether a call leaves this machine."""
        return self.side_effects == "external" or self.safety.network

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON data, for listings."""
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
    """Return the replay class of declared side effects."""
    if side_effects == "pure":
        return "pure"
    return "idempotent" if side_effects == "read" or idempotent else "unsafe"


def destructive_of(side_effects: SideEffects, destructive: bool | None) -> bool | None:  # noqa: FBT001 - a tri-state value, not a switch
    """Return whether a source's call is destructive; None, unknown, for undeclared external calls."""
    if destructive is not None:
        return destructive
    return None if side_effects == "external" else False


class ToolDefinition(NamedTuple):
    """The definition of a tool for a model's function calling."""

    name: str
    description: str
    parameters: JsonSchema

    def to_openai(self) -> dict[str, Any]:
        """Return the definition for OpenAI's chat completions."""
        return {"type": "function", "function": self._asdict()}

    def to_openai_responses(
        self, *, defer_loading: bool = False, allowed_callers: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the definition for OpenAI's responses, without strict mode: Toolpost validates the arguments.

        With `defer_loading`, the model loads it by the provider's tool search. `allowed_callers` are `direct` or
        `programmatic`.
        """
        shown: dict[str, Any] = {"type": "function", **self._asdict(), "strict": False}
        if defer_loading:
            shown["defer_loading"] = True
        if allowed_callers:
            shown["allowed_callers"] = list(allowed_callers)
        return shown

    def to_anthropic(
        self,
        *,
        defer_loading: bool = False,
        input_examples: Sequence[Mapping[str, Any]] = (),
        allowed_callers: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the definition for Anthropic's messages.

        With `defer_loading`, the model loads it by the provider's tool search. `input_examples` are arguments of
        calls; the provider rejects examples that do not fit the schema. `allowed_callers` are `direct` or the
        provider's code execution, such as `code_execution_20250825`.
        """
        shown: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.parameters,
        }
        if defer_loading:
            shown["defer_loading"] = True
        if input_examples:
            shown["input_examples"] = [dict(example) for example in input_examples]
        if allowed_callers:
            shown["allowed_callers"] = list(allowed_callers)
        return shown

    def to_gemini(self) -> dict[str, Any]:
        """Return the function declaration for Gemini, with the schema as `parametersJsonSchema`."""
        return {"name": self.name, "description": self.description, "parametersJsonSchema": self.parameters}

    def to_bedrock(self) -> dict[str, Any]:
        """Return the tool for the Converse API of Amazon Bedrock."""
        shown = {"name": self.name, "description": self.description, "inputSchema": {"json": self.parameters}}
        return {"toolSpec": shown}


@runtime_checkable
class PreviewingTool(Protocol):
    """A tool that can preview a call."""

    async def preview(self, params: dict[str, Any], context: ToolContext) -> CallPreview | None:
        """Return a preview of the call; None if the declaration of the tool applies."""
        ...


@runtime_checkable
class DescribingTool(Protocol):
    """A tool that knows what a call of it sends or runs."""

    def describe_call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request or command of a call as data with a `kind`, without credentials and without any effect.

        Secrets in the arguments are already masked. ToolError for arguments that cannot be sent.
        """
        ...


class CustomTool(Protocol):
    """An object with the members of a tool; the catalog creates its `spec`."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        ...

    @property
    def description(self) -> str:
        """The description for a model."""
        ...

    @property
    def category(self) -> ToolCategory | str:
        """The category, such as `custom`."""
        ...

    @property
    def parameters(self) -> Any:
        """A JSON Schema, or a type such as a pydantic model."""
        ...

    @property
    def execute(self) -> Callable[[Any, Any], Any]:
        """Run the tool: a function of the parameters and the ToolContext, async or not."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool: built-in, custom or external."""

    @property
    def spec(self) -> ToolSpec:
        """The specification of the tool."""
        ...

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; a failure is a result with `success=False`, or an exception."""
        ...
