"""Resources and prompts of upstream MCP servers, and artifacts, for MCP clients.

Lists come from the last listing of each source. Reading a resource and getting a prompt are calls of the tools
`resources_read` and `prompts_get` of its source: a client that may not call them sees and reads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Question
from toolpost.contracts.storage import ARTIFACTS
from toolpost.gateway.mcp.names import FLAT_PAGE, UI_SCHEME, Origin
from toolpost.gateway.mcp.results import resource_contents, whole_content
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolpost.contracts.outcomes import Completed
    from toolpost.contracts.sources import ContentSource
    from toolpost.gateway.mcp.names import Names
    from toolpost.toolbox.box import Toolbox

Raw: TypeAlias = "dict[str, Any]"
_READ, _GET = "resources_read", "prompts_get"


class Contents:
    """Resources, templates, prompts and artifacts of an open Toolbox, under the names that clients see."""

    def __init__(self, box: Toolbox, names: Names, *, sees: Callable[[str], bool]) -> None:
        self._box = box
        self._names = names
        self._sees = sees

    # ------------------------------------------------------------------ lists

    async def resources(self, user: str) -> list[Raw]:
        """Return the resources of all sources, and this user's artifacts."""
        return self.listed_resources() + await self._artifacts(user)

    def listed_resources(self) -> list[Raw]:
        """Return the resources of all sources."""
        return [
            {**one, "uri": self._names.uri(Origin(name, one["uri"]))}
            for name, source in self._sources(_READ)
            for one in source.contents.resources
        ]

    def templates(self) -> list[Raw]:
        """Return the resource templates of all sources."""
        return [
            {**one, "uriTemplate": self._names.uri(Origin(name, one["uriTemplate"]))}
            for name, source in self._sources(_READ)
            for one in source.contents.templates
        ]

    def prompts(self) -> list[Raw]:
        """Return the prompts of all sources; the first of two with the same name."""
        shown: dict[str, Raw] = {}
        for name, source in self._sources(_GET):
            for one in source.contents.prompts:
                shown.setdefault(self._names.prompt(Origin(name, one["name"])), dict(one))
        return [{**one, "name": name} for name, one in shown.items()]

    def _sources(self, tool: str) -> Iterator[tuple[str, ContentSource]]:
        """Return the sources with this utility tool in the catalog, which an operator may have excluded."""
        for name, source in self._box.sources.index.content_sources().items():
            if self._names.serves(name) and self._is_utility(f"{name}.{tool}"):
                yield name, source

    def _is_utility(self, tool_name: str) -> bool:
        registry = self._box.registry
        seen = registry.has(tool_name) and self._sees(tool_name)
        return seen and bool(registry.find(tool_name).spec.extra.get("helper"))

    async def _artifacts(self, user: str) -> list[Raw]:
        owner = Principal.parse(user)
        found = await self._box.store.artifacts.list(tenant=owner.tenant, user=owner.user)
        return [
            {"uri": ref.uri, "name": ref.name or ref.id, "mimeType": ref.media_type, "size": ref.size} for ref in found
        ]

    # ------------------------------------------------------------------ lookup

    async def read_artifact(self, uri: str, user: str) -> Raw | None:
        """Return an artifact of this user as the contents of a resource; None for any other resource."""
        if not uri.startswith(ARTIFACTS):
            return None
        owner, artifact_id = Principal.parse(user), uri.removeprefix(ARTIFACTS)
        artifacts = self._box.store.artifacts
        ref = await artifacts.info(artifact_id, tenant=owner.tenant, user=owner.user)
        if ref is None:
            return None
        data = await artifacts.read(artifact_id, tenant=owner.tenant)
        return {"contents": [resource_contents(uri, ref.media_type, data)]}

    def find_resource(self, uri: str) -> Origin:
        """Return the origin of a resource from the URI that clients see, or from one that exactly one source lists."""
        origin = self._names.find_uri(uri)
        served = dict(self._sources(_READ))
        if origin is not None and origin.source in served:
            return origin
        holders = [
            Origin(name, uri)
            for name, source in served.items()
            if any(one["uri"] == uri for one in source.contents.resources)
        ]
        if len(holders) != 1:
            raise no_resource(uri)
        return holders[0]

    def find_prompt(self, shown: str) -> Origin:
        """Return the origin of the prompt with this name for clients."""
        known = (Origin(name, one["name"]) for name, source in self._sources(_GET) for one in source.contents.prompts)
        origin = self._names.find_prompt(shown, known)
        if origin is None:
            raise no_prompt(shown)
        return origin

    @staticmethod
    def reading(origin: Origin) -> tuple[str, Raw]:
        """Return the call that reads a resource."""
        return f"{origin.source}.{_READ}", {"uri": origin.name}

    @staticmethod
    def getting(origin: Origin, arguments: Mapping[str, Any] | None) -> tuple[str, Raw]:
        """Return the call that fills in a prompt."""
        given = {} if arguments is None else {"arguments": dict(arguments)}
        return f"{origin.source}.{_GET}", {"name": origin.name, **given}

    # ------------------------------------------------------------------ results

    async def read_result(self, outcome: Completed, origin: Origin, user: str) -> Raw:
        """Return the contents of a resource, with the URIs that clients see."""
        raw = await self._whole(outcome, user)
        contents = [
            {**one, "uri": self._names.uri(Origin(origin.source, one["uri"]))} for one in _objects(raw.get("contents"))
        ]
        if not contents:
            raise no_resource(self._names.uri(origin))
        return {**raw, "contents": contents}

    async def prompt_result(self, outcome: Completed, origin: Origin, user: str) -> Raw:
        """Return a prompt that a server filled in, with the URIs that clients see."""
        raw = await self._whole(outcome, user)
        messages = [
            {**one, "content": self._shown(one.get("content"), origin.source)} for one in _objects(raw.get("messages"))
        ]
        return {**raw, "messages": messages}

    def _shown(self, block: Any, source: str) -> Any:
        """Return a content block with the URI that clients see; that of an artifact is final."""
        if not is_object(block) or str(block.get("uri", "")).startswith(ARTIFACTS):
            return block
        inner = block.get("resource")
        if is_object(inner) and isinstance(inner.get("uri"), str):
            return {**block, "resource": {**inner, "uri": self._names.uri(Origin(source, inner["uri"]))}}
        if block.get("type") == "resource_link" and isinstance(block.get("uri"), str):
            return {**block, "uri": self._names.uri(Origin(source, block["uri"]))}
        return block

    def shown_blocks(self, blocks: Sequence[Any], source: str) -> list[Any]:
        """Return the content of a tool's result with the URIs that clients see; those of artifacts are final."""
        return [self._shown(block, source) for block in blocks]

    # ------------------------------------------------------------------ MCP Apps

    def shown(self, item: Raw, source: str) -> Raw:
        """Return a tool or result with the URIs of MCP App pages in its `_meta` as clients see them."""
        meta: Any = item.get("_meta")
        ui: Any = meta.get("ui") if meta else None
        if not is_object(ui) and not (meta and FLAT_PAGE in meta):
            return item
        shown = {**meta, "ui": self._with_page(ui, "resourceUri", source)} if is_object(ui) else meta
        return {**item, "_meta": self._with_page(shown, FLAT_PAGE, source)}

    def _with_page(self, members: Raw, key: str, source: str) -> Raw:
        """Return members with the URI of a page as clients see it, or without it if they cannot read the page."""
        if key not in members:
            return members
        uri, rest = members[key], {name: value for name, value in members.items() if name != key}
        readable = isinstance(uri, str) and uri.startswith(UI_SCHEME) and self._is_readable(source)
        return {**rest, key: self._names.uri(Origin(source, uri))} if readable else rest

    def _is_readable(self, source: str) -> bool:
        """Return whether the resources of a source can be read: its tool is visible, and no rule denies it."""
        tool_name = f"{source}.{_READ}"
        if not self._is_utility(tool_name):
            return False
        return self._box.router.policy.verdict(self._box.registry.find(tool_name).spec).action != "deny"

    async def _whole(self, outcome: Completed, user: str) -> Raw:
        """Return the result of a server, read from its artifact if it is large."""
        content = await whole_content(outcome.content, self._box.store.artifacts, Principal.parse(user))
        return content if is_object(content) else {}

    # ------------------------------------------------------------------ beside calls

    async def complete(self, params: Raw, user: str) -> Raw:
        """Complete an argument of a prompt or of a template."""
        ref: Raw = params["ref"]
        if ref.get("type") == "ref/prompt":
            origin = self.find_prompt(str(ref.get("name")))
            tool_name, arguments = self.getting(origin, None)
            inner = {**ref, "name": origin.name}
        else:
            origin = self.find_resource(str(ref.get("uri")))
            tool_name, arguments = self.reading(origin)
            inner = {**ref, "uri": origin.name}
        source = self._box.sources.index.content_sources()[origin.source]
        if not source.contents.completes:
            return {"completion": {"values": []}}
        call = await self._authorize(tool_name, arguments, user)
        try:
            return dict(await source.complete(call, {**params, "ref": inner}))
        except ToolError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from error

    async def subscribe(self, uri: str, user: str) -> Origin | None:
        """Subscribe to updates of a resource; return None for artifacts, which never change."""
        if uri.startswith(ARTIFACTS):
            return None
        origin = self.find_resource(uri)
        tool_name, arguments = self.reading(origin)
        await self._authorize(tool_name, arguments, user)
        try:
            await self._box.sources.index.content_sources()[origin.source].subscribe(origin.name)
        except ToolError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from error
        return origin

    async def unsubscribe(self, origin: Origin) -> None:
        """End the subscription to a resource; its source may have been removed."""
        source = self._box.sources.index.content_sources().get(origin.source)
        if source is not None:
            await source.unsubscribe(origin.name)

    async def _authorize(self, tool_name: str, arguments: Raw, user: str) -> Any:
        try:
            call = await self._box.router.authorize(tool_name, arguments, principal=Principal.parse(user))
        except ToolError as error:
            raise MCPError(code=INVALID_PARAMS, message=error.message) from error
        if isinstance(call, Question):
            raise MCPError(code=INVALID_PARAMS, message=f"{tool_name} needs an answer from a person: call it first")
        return call


def no_resource(uri: str) -> MCPError:
    """Return the error for a resource that does not exist."""
    return MCPError(code=INVALID_PARAMS, message=f"unknown resource {uri!r}", data={"uri": uri})


def no_prompt(name: str) -> MCPError:
    """Return the error for a prompt that does not exist."""
    return MCPError(code=INVALID_PARAMS, message=f"unknown prompt {name!r}")


def _objects(items: Any) -> list[Raw]:
    return [one for one in items or () if is_object(one)]
