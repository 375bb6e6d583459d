"""Protocols of tool sources and credential providers."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, ToolOutput
from toolpost.contracts.errors import ToolError
from toolpost.contracts.outcomes import Outcome
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import Tool


class ToolSource(Protocol):
    """A source of tools; it manages its own sessions, one per credential."""

    @property
    def name(self) -> str:
        """The namespace of the source's tools."""
        ...

    @property
    def health(self) -> SourceHealth:
        """The state of the connection."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """The tools that the last listing skipped, and why."""
        ...

    @property
    def secrets(self) -> AbstractSet[str]:
        """The secrets found in the description of the tools; they are redacted everywhere."""
        ...

    @property
    def files(self) -> Collection[str]:
        """The files that were read to list the tools; file tools neither read nor write these."""
        ...

    async def discover(self) -> Sequence[Tool]:
        """List the tools that the source offers now."""
        ...

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call."""
        ...

    async def close(self) -> None:
        """Close sessions and processes; safe to call twice."""
        ...


class SourceTraits(NamedTuple):
    """Facts about a source that its transport knows.

    With `is_own_code`, the tools are the operator's code in this process. With `declares_schemas`, the configuration
    contains the schemas of the tools. With `calls_tools`, its tools may call others of the catalog.
    """

    is_own_code: bool = False
    declares_schemas: bool = False
    calls_tools: bool = False


class SourceListener(Protocol):
    """Receiver of reports of a source between calls; the catalog implements it."""

    async def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Replace the tools of the source; `problems` lists the skipped ones, and why."""
        ...

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """Report that the connection was opened, broke, or could not be opened."""
        ...

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """Report a log message of the server."""
        ...

    def contents_changed(self, source: ToolSource) -> None:
        """Report that the source lists other resources or prompts."""
        ...

    def resource_updated(self, source: ToolSource, uri: str) -> None:
        """Report that a resource has changed."""
        ...


class SourceHealth(NamedTuple):
    """The state of a source's connection, and why."""

    state: Literal["up", "down", "connecting", "closed"]
    detail: str = ""


@runtime_checkable
class LiveSource(ToolSource, Protocol):
    """A source whose tools and connection may change while it is open."""

    def watch(self, listener: SourceListener) -> None:
        """Report to this listener from now on."""
        ...


@runtime_checkable
class RecallingSource(ToolSource, Protocol):
    """A source with a stored listing: its tools are known before it is connected."""

    async def recall(self) -> Sequence[Tool]:
        """Return the tools of the stored listing without connecting; none without a listing."""
        ...


@runtime_checkable
class ProcessSource(ToolSource, Protocol):
    """A source that starts processes."""

    @property
    def stderr_tail(self) -> str:
        """The end of what its processes wrote to stderr, with the secrets of the source masked."""
        ...


@runtime_checkable
class HoldingSource(ToolSource, Protocol):
    """A source that may hold a call open while it waits for an answer."""

    def release(self, call_id: str) -> None:
        """Release a held call that will get no answer; safe for calls that are not held."""
        ...


@runtime_checkable
class PersonalSource(ToolSource, Protocol):
    """A source that may list more tools with a user's credential than without."""

    @property
    def refusal(self) -> ToolError | None:
        """The server's last refusal to list tools, which names the credential that a sign-in must obtain."""
        ...

    async def list_for(self, credential: Credential) -> None:
        """List with a user's credential and report the tools to the listener."""
        ...


class ServerContents(NamedTuple):
    """The listed resources, templates and prompts of an MCP server, unchanged.

    With `completes`, the server completes arguments of prompts and templates. With `notifies`, it sends notifications
    about changed resources.
    """

    resources: Sequence[Mapping[str, Any]] = ()
    templates: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] = ()
    completes: bool = False
    notifies: bool = False


@runtime_checkable
class ContentSource(ToolSource, Protocol):
    """A source with resources and prompts besides tools; `resources_read` and `prompts_get` are tools that read them.

    A caller who may call these tools may also use the methods of this source.
    """

    @property
    def contents(self) -> ServerContents:
        """The last listing of the source."""
        ...

    @property
    def subscriptions(self) -> Sequence[str]:
        """The URIs of resources with subscribers, one for each subscriber."""
        ...

    async def complete(self, call: AuthorizedCall, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or a template."""
        ...

    async def subscribe(self, uri: str) -> None:
        """Report changes of a resource to the listener from now on; one call for each subscriber."""
        ...

    async def unsubscribe(self, uri: str) -> None:
        """Report no more changes of a resource; one call for each subscription."""
        ...


class CredentialProvider(Protocol):
    """Provide the credential of each user for one source."""

    async def credential(self, call: PermittedCall) -> Credential | Question:
        """Return the credential of the call's user, or the question that obtains one.

        The credential's `key` differs between users and stays the same when the token is renewed.
        """
        ...


@runtime_checkable
class RenewingProvider(CredentialProvider, Protocol):
    """A provider that can replace a credential that was refused."""

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Return another credential, the question that obtains one, or None if neither helps."""
        ...


class ToolCaller(Protocol):
    """Something that calls tools by name through the runtime."""

    async def call(self, tool_name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call a tool."""
        ...
