"""The Protocols of where tools come from and of who calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, ToolOutput
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import JsonSchema, Tool


class ToolSource(Protocol):
    """A place that tools come from; it keeps its own sessions, one per credential."""

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        ...

    @property
    def health(self) -> SourceHealth:
        """How it is doing now."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What of its tools was left out at the last listing, and why."""
        ...

    @property
    def secrets(self) -> AbstractSet[str]:
        """The secrets that it found in what describes its tools; they are redacted everywhere."""
        ...

    @property
    def files(self) -> Collection[str]:
        """The files that it read to list its tools; file tools neither read nor write those."""
        ...

    async def discover(self) -> Sequence[Tool]:
        """Find the tools it offers now."""
        ...

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call."""
        ...

    async def close(self) -> None:
        """Let go of everything it holds; safe to call twice."""
        ...


class SourceListener(Protocol):
    """Whoever keeps the catalog: hears what a source has to tell between calls."""

    async def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """These are all the tools that the source offers from now on, and what was left out of them and why."""
        ...

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """The connection came up, broke, or could not be made."""
        ...

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """The other side wrote to its log."""
        ...


class SourceHealth(NamedTuple):
    """How a source is doing: `up`, `down`, `connecting` or `closed`, and why."""

    state: Literal["up", "down", "connecting", "closed"]
    detail: str = ""


@runtime_checkable
class LiveSource(ToolSource, Protocol):
    """A source whose tools and connection may change while it is open."""

    def watch(self, listener: SourceListener) -> None:
        """Tell this listener from now on."""
        ...


@runtime_checkable
class RecallingSource(ToolSource, Protocol):
    """A source that remembers its last listing, so that its tools are there before it is connected."""

    async def recall(self) -> Sequence[Tool]:
        """The tools of the last listing, without asking the other side; none where nothing is remembered."""
        ...


@runtime_checkable
class HoldingSource(ToolSource, Protocol):
    """A source that may hold a call open while a person is asked."""

    def release(self, call_id: str) -> None:
        """Nobody will answer any more; safe for calls that are not held."""
        ...


@runtime_checkable
class PersonalSource(ToolSource, Protocol):
    """A source that may list more for a person who has signed in than for a stranger."""

    @property
    def refusal(self) -> ToolError | None:
        """What it was told when it was last not let in to list; that says what a sign-in must bring."""
        ...

    async def list_for(self, credential: Credential) -> None:
        """List with a person's own credential, and tell the catalog what there is."""
        ...


class CredentialProvider(Protocol):
    """Lends each person's credential for one source."""

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """The credential of the person the call is for, or the question that gets one.

        Its `key` must differ between people and stay the same when the token is renewed.
        """
        ...


@runtime_checkable
class RenewingProvider(CredentialProvider, Protocol):
    """One that can do something about a credential that was refused."""

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Another credential, the question that gets one, or None when nothing helps."""
        ...


class ChatModel(Protocol):
    """The small part of a language model that agents need."""

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        """The model's next message."""
        ...


class Caller(Protocol):
    """Something that calls tools by name, down the one straight line."""

    async def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCommand:
    """One tool of a manual; `args` are all words of its command, with `{name}` where an argument goes.

    Where the manual has no command for it that may be run, there are none, and `fault` is the sentence that says why.
    `input_schema` is None where the manual does not describe the arguments.
    """

    name: str
    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fault: str = ""


class DescribedCommands(NamedTuple):
    """What a manual describes, and what of it could not be read."""

    commands: Sequence[DescribedCommand] = ()
    problems: Sequence[str] = ()
