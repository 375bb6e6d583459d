"""n8n: list the active workflows by its public API, and build tools from their Webhook nodes and notes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import unicodedata
from collections import Counter
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

from msgspec import Struct, field

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.config import WebhookTool
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolNodeError, ToolTimeoutError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.webhook.hooks import Hook, HookDefinition, resolve_url, with_keyed_replay
from toolpost.web.content import parse_json, parse_media_type
from toolpost.web.requests import Pair, extract_reason, response_error, sanitize
from toolpost.wire.messages import Headers, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema
    from toolpost.wire.client import HttpClient

API_KEY_HEADER = "X-N8N-API-KEY"
WORKFLOWS_PATH = "/api/v1/workflows"
API_KEY_HINT = (
    "Make one in n8n under Settings, n8n API, and write it into the source: "
    "auth_type: api_key, auth_config: {api_key: ...}"
)
_PAGE_SIZE = 100
_MAX_PAGES = 200
_MAX_TOTAL_BYTES = 128 * 1024 * 1024
_MAX_PROBE_BYTES = 1024 * 1024
_BASE_URL_HINT = "is the connection its base URL, without a path of the editor?"
_MAX_HTML_BYTES = 64 * 1024
_HTML_MARKERS = (b'name="n8n:config:', b"<title>n8n.io - workflow automation")
# Keys that occur together in n8n's settings; newer versions return only the first three before a login.
_SETTINGS_KEYS = (
    {"settingsMode", "userManagement", "authCookie"},
    {"versionCli", "endpointWebhook"},
    {"n8nMetadata", "userManagement"},
)


class N8nApi:
    """Client for the API of one n8n; `headers` hold its API key."""

    def __init__(self, client: HttpClient, base: str, headers: Sequence[Pair], *, timeout_s: float) -> None:
        self._client = client
        self._base = base.partition("#")[0].partition("?")[0].rstrip("/")
        self._headers = tuple(headers)
        self._timeout_s = timeout_s

    async def is_n8n(self) -> bool:
        """Probe the base URL without a credential, because it may be another server."""
        for path in ("/rest/settings", WORKFLOWS_PATH):
            response = await self._get(path, (), _MAX_PROBE_BYTES)
            if looks_like_n8n(response.status, response.headers, response.body):
                return True
        return False

    async def active_workflows(self, *, page: int = _PAGE_SIZE) -> list[dict[str, Any]]:
        """List the active workflows over all pages, each once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return _deduplicate(await self._pages(page))
        except TimeoutError:
            what = f"{self._subject} did not list its workflows within {self._timeout_s:g} s"
            raise ToolTimeoutError(f"{what}; raise connect_timeout_s") from None

    async def _pages(self, size: int) -> list[dict[str, Any]]:
        workflows: list[dict[str, Any]] = []
        seen = {""}
        cursor, bytes_left = "", _MAX_TOTAL_BYTES
        for _ in range(_MAX_PAGES):
            response = await self._page(size, cursor, max(bytes_left, 1))
            content, bytes_left = self._parse_page(response), bytes_left - len(response.body)
            workflows += [workflow for workflow in content["data"] if is_object(workflow)]
            cursor = content.get("nextCursor") or ""
            if not cursor:
                return workflows
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        raise ToolClientError(f"{self._subject} lists its workflows without end: its cursors lead nowhere new")

    async def _page(self, size: int, cursor: str, max_bytes: int) -> Response:
        after = f"&cursor={quote(cursor, safe='', errors='replace')}" if cursor else ""
        response = await self._get(f"{WORKFLOWS_PATH}?active=true&limit={size}{after}", self._headers, max_bytes)
        if response.status != 200:
            raise self._error(response)
        return response

    def _parse_page(self, response: Response) -> dict[str, Any]:
        try:
            content = parse_json(response.body)
        except ValueError:
            content = None
        if not is_object(content) or not is_array(content.get("data")):
            raise ToolClientError(f"{self._subject} did not answer as n8n's API does; {_BASE_URL_HINT}")
        return content

    async def _get(self, path: str, headers: tuple[Pair, ...], max_bytes: int) -> Response:
        all_headers = (("Accept", "application/json"), *headers)
        request = Request("GET", self._base + path, headers=all_headers, timeout_s=self._timeout_s, max_bytes=max_bytes)
        async with await self._client.send(request) as response:
            await response.read()
            return response

    def _error(self, response: Response) -> ToolNodeError:
        status, secrets = response.status, [value for _, value in self._headers]
        reason = sanitize(extract_reason(response.headers, response.body), secrets)
        if status == 401:
            problem = "refuses the API key" if self._headers else "wants an API key"
            return ToolAuthError(f"{self._subject} {problem} ({reason}). {API_KEY_HINT}", status_code=401)
        if status == 403:
            msg = f"{self._subject} does not let this API key list workflows ({reason})"
            return ToolAuthError(f"{msg}; give it the scope workflow:list", status_code=403)
        if status == 404:
            msg = f"{self._subject} has no public API: it is switched off there (N8N_PUBLIC_API_DISABLED), or"
            return ToolClientError(f"{msg} the connection is not the base URL of an n8n", status_code=404)
        return response_error(self._subject, status, response.headers, response.body, secrets=secrets)

    @property
    def _subject(self) -> str:
        return f"n8n at {self._base}"


def _deduplicate(workflows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one entry per workflow id; a list that changes meanwhile may repeat one on two pages."""
    by_id: dict[str | int, dict[str, Any]] = {}
    for number, workflow in enumerate(workflows):
        workflow_id = workflow.get("id")
        by_id[workflow_id if isinstance(workflow_id, str) and workflow_id else number] = workflow
    return list(by_id.values())


def looks_like_n8n(status: int, headers: Headers | Mapping[str, str], body: bytes) -> bool:
    """Detect an n8n by its response to a GET of the base URL, `/rest/settings` or `/api/v1/workflows`."""
    # Not by `/healthz`: many servers return its {"status": "ok"}.
    kind = parse_media_type(headers.get("content-type") or "")
    if kind.essence == "text/html":
        page = body[:_MAX_HTML_BYTES].lower()
        return status == 200 and any(marker in page for marker in _HTML_MARKERS)
    if kind.kind != "json":
        return False
    return _is_n8n_json(status, body)


def _is_n8n_json(status: int, body: bytes) -> bool:
    try:
        value = parse_json(body)
    except ValueError:
        return False
    if not is_object(value):
        return False
    if status == 401:
        return "x-n8n-api-key" in str(value.get("message")).lower()
    settings = value.get("data")
    return status == 200 and is_object(settings) and any(keys <= settings.keys() for keys in _SETTINGS_KEYS)


_KIND = "n8n"
_MAX_DESCRIPTION_CHARS = 2000
_MAX_SUGGESTIONS = 5
_RESPOND_HINT = "set its Respond to 'When Last Node Finishes', or calls will fail"
# What values of unexpected types raise, and strings that cannot be encoded.
_MALFORMED_DATA = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_T = TypeVar("_T")
_WEBHOOK_NODE = "n8n-nodes-base.webhook"
RESPOND_IMMEDIATELY = "onReceived"
_MCP_NODE = "@n8n/n8n-nodes-langchain.mcpTrigger"
_STICKY_NOTE = "n8n-nodes-base.stickyNote"
_OTHER_TRIGGERS = {
    "n8n-nodes-base.formTrigger": "a form, which people fill in",
    "@n8n/n8n-nodes-langchain.chatTrigger": "a chat, which keeps a session",
}
_METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE", "HEAD")
_DOT_SEGMENTS = frozenset({".", ".."})
_NON_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
_MAX_SLUG_CHARS = 200
_HASH_CHARS = 6


class N8nToolBuilder(Struct, frozen=True, kw_only=True):
    """Builds tools from workflows; `tools` are the configured options, by tool name."""

    source: str
    base: str
    tools: Mapping[str, WebhookTool]

    def build(self, workflows: Sequence[dict[str, Any]]) -> tuple[list[HookDefinition], list[str]]:
        """Return the tools, and the problems of workflows that were left out or renamed."""
        reader = TriggerReader()
        malformed: list[str] = []
        for workflow in workflows:
            _attempt(f"workflow {str(workflow.get('name'))!r}", malformed, partial(reader.add, workflow))
        triggers = reader.triggers
        names = tool_names(triggers)
        problems = [*reader.problems, *malformed, *_duplicate_name_problems(triggers, names)]
        definitions: list[HookDefinition] = []
        for name, trigger in zip(names, triggers, strict=True):
            definition = _attempt(f"tool {name!r}", problems, partial(self._definition, name, trigger, problems))
            definitions += [] if definition is None else [definition]
        problems += self._unmatched_problems(set(names))
        return definitions, problems

    def _definition(self, name: str, trigger: WebhookTrigger, problems: list[str]) -> HookDefinition:
        configured = self.tools.get(name)
        docs = _read_docs(trigger)
        problems += [f"tool {name!r}: {problem}" for problem in docs.problems]
        tool = with_keyed_replay(_with_docs(trigger, configured, docs))
        if tool.output_schema is not None and trigger.mode == RESPOND_IMMEDIATELY:
            problem = "it promises an output, but its Webhook node answers at once"
            problems.append(f"tool {name!r}: {problem}; {_RESPOND_HINT}")
        address, query = resolve_url(self.base, f"webhook/{trigger.path}")
        extra = {"method": trigger.method, "workflow_id": trigger.workflow_id, "workflow": trigger.workflow}
        hook = Hook(
            method=trigger.method,
            address=address,
            query=query,
            slots=trigger.slots,
            key_header=tool.idempotency_header,
            timeout_s=tool.timeout_s,
            is_n8n=True,
            workflow=trigger.workflow,
            mode=trigger.mode,
            login=trigger.login,
        )
        spec = declared_spec(self.source, name, tool=tool, kind=_KIND, extra=extra, target=hook.target)
        for schema in filter(None, (spec.input_schema, spec.output_schema)):
            compile_validator(schema)  # an invalid schema is a problem of discovery, not of each call
        return HookDefinition(name=name, spec=spec, hook=hook)

    def _unmatched_problems(self, names: set[str]) -> Iterator[str]:
        for name in self.tools:
            if name not in names:
                similar = get_close_matches(name, sorted(names), n=_MAX_SUGGESTIONS, cutoff=0.0)
                yield f"webhook.tools.{name} fits no active workflow; the nearest are: {', '.join(similar) or 'none'}"


def _attempt(what: str, problems: list[str], action: Callable[[], _T]) -> _T | None:
    """Run `action`; record an error from malformed data as a problem, so that other workflows stay usable."""
    try:
        return action()
    except _MALFORMED_DATA as error:
        problems.append(sanitize(f"{what} is left out: {error}", ()))
        return None


def _read_docs(trigger: WebhookTrigger) -> WorkflowNote:
    """Read the notes and the pinned sample; the first value of each kind is used."""
    notes = [parse_note(text) for text in trigger.notes]
    problems = [problem for note in notes for problem in note.problems]
    input_schema = next((note.input_schema for note in notes if note.input_schema is not None), None)
    if input_schema is not None and input_schema.get("type", "object") != "object":
        problems.append("the input schema in its notes is not that of an object, so that it was not used")
        input_schema = None
    if input_schema is None and is_object(trigger.sample):
        input_schema = infer_schema(trigger.sample)
    output_schema = next((note.output_schema for note in notes if note.output_schema is not None), None)
    description = next((note.description for note in notes if note.description), "")
    return WorkflowNote(description, input_schema, output_schema, tuple(problems))


def _with_docs(trigger: WebhookTrigger, configured: WebhookTool | None, docs: WorkflowNote) -> WebhookTool:
    """Return the configured options, completed from the workflow's own description and schemas."""
    tool = WebhookTool() if configured is None else configured
    configured_fields = tool.model_fields_set
    own = closed_schema(tool.input_schema)
    schema = own if "input_schema" in configured_fields or docs.input_schema is None else docs.input_schema
    return tool.model_copy(
        update={
            "description": tool.description or _description(trigger, docs.description),
            "input_schema": _with_slots(schema, trigger.slots),
            "output_schema": tool.output_schema if "output_schema" in configured_fields else docs.output_schema,
        }
    )


def _description(trigger: WebhookTrigger, note: str) -> str:
    clean = "".join(char if char.isprintable() or char == "\n" else " " for char in note)
    text = clean[:_MAX_DESCRIPTION_CHARS] or f"Run the n8n workflow {trigger.workflow!r}."
    if trigger.mode == RESPOND_IMMEDIATELY:
        text = f"{text}\n\nIt answers at once, before the workflow is done, and not with its result."
    return text


def _with_slots(schema: JsonSchema, slots: tuple[str, ...]) -> JsonSchema:
    """Add the path parameters to the schema as required properties."""
    if not slots:
        return schema
    properties = as_object(schema.get("properties"))
    scalar = {"anyOf": [{"type": "string"}, {"type": "number"}]}
    named: dict[str, Any] = {slot: properties.get(slot, scalar) for slot in slots}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if is_array(required) else []
    every = [*dict.fromkeys([*names, *slots])]
    return {**schema, "type": "object", "properties": {**properties, **named}, "required": every}


def _duplicate_name_problems(triggers: Sequence[WebhookTrigger], names: Sequence[str]) -> Iterator[str]:
    """Report workflows that share a name."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for trigger, name in zip(triggers, names, strict=True):
        by_name.setdefault(trigger.workflow, {}).setdefault(trigger.workflow_id, []).append(name)
    for workflow, ids in by_name.items():
        if len(ids) > 1:
            tools = ", ".join(name for several in ids.values() for name in several)
            yield f"{len(ids)} workflows are named {workflow!r}, so that their tools are named by their paths: {tools}"


class WebhookTrigger(Struct, frozen=True, kw_only=True):
    """A Webhook node with one method: its URL path, response mode, authentication, notes and pinned sample."""

    workflow: str
    workflow_id: str
    node: str
    method: str
    path: str
    slots: tuple[str, ...] = ()
    mode: str = RESPOND_IMMEDIATELY
    login: str = ""
    notes: tuple[str, ...] = ()
    sample: Any = None


class TriggerReader(Struct):
    """Collects the Webhook nodes of workflows, and the problems of nodes that were left out."""

    triggers: list[WebhookTrigger] = field(default_factory=list["WebhookTrigger"])
    problems: list[str] = field(default_factory=list[str])

    def add(self, workflow: dict[str, Any]) -> None:
        """Add the triggers of one workflow; inactive and archived ones have none."""
        if workflow.get("active") is False or workflow.get("isArchived") is True:
            return
        name = sanitize(str(workflow.get("name") or ""), ())
        version = _active_version(workflow)
        nodes = version.get("nodes")
        if not is_array(nodes):
            self.problems.append(f"workflow {name!r} has no nodes that can be read")
            return
        enabled = [node for node in nodes if is_object(node) and node.get("disabled") is not True]
        for node in enabled:
            if node.get("type") == _WEBHOOK_NODE:
                self._add_webhook(workflow, name, node, _notes(workflow, version, node, enabled))
            else:
                self.problems += _other_trigger_problems(name, node)

    def _add_webhook(self, workflow: dict[str, Any], name: str, node: dict[str, Any], notes: tuple[str, ...]) -> None:
        parameters = as_object(node.get("parameters"))
        methods, path = _methods(parameters), _path(workflow, node, parameters)
        if not methods or path is None:
            reason = "its path or method is worked out by n8n" if path is None else "its method cannot be called"
            self.problems.append(f"workflow {name!r} has a webhook that is left out: {reason}")
            return
        self.triggers += [
            WebhookTrigger(
                workflow=name,
                workflow_id=sanitize(str(workflow.get("id") or ""), ()),
                node=sanitize(str(node.get("name") or ""), ()),
                method=method,
                path=path,
                slots=tuple(step[1:] for step in path.split("/") if step.startswith(":") and step[1:]),
                mode=str(parameters.get("responseMode") or RESPOND_IMMEDIATELY),
                login=_login(parameters),
                notes=notes,
                sample=_pinned_sample(workflow, node, method),
            )
            for method in methods
        ]


def _active_version(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the published version; the workflow itself may hold an unpublished draft."""
    version = workflow.get("activeVersion")
    return version if is_object(version) and is_array(version.get("nodes")) else workflow


def _other_trigger_problems(workflow: str, node: dict[str, Any]) -> Iterator[str]:
    """Report form, chat and MCP triggers, which cannot be called as webhooks."""
    kind = str(node.get("type"))
    if kind in _OTHER_TRIGGERS:
        yield f"workflow {workflow!r} starts with {_OTHER_TRIGGERS[kind]}; give it a Webhook node to call it as a tool"
    elif kind == _MCP_NODE:
        where = sanitize(f"/mcp/{as_object(node.get('parameters')).get('path', '')}", ())
        yield f"workflow {workflow!r} is an MCP server: connect it as a source of its own, transport mcp, at {where}"


def _methods(parameters: dict[str, Any]) -> list[str]:
    """Return the methods of a node; n8n omits default values, and each method has its own branch."""
    several = parameters.get("multipleMethods") is True
    value = parameters.get("httpMethod", ["GET", "POST"] if several else "GET")
    offered = value if is_array(value) else [value]
    return [method for method in _METHODS if method in offered]


def _path(workflow: dict[str, Any], node: dict[str, Any], parameters: dict[str, Any]) -> str | None:
    """Return the path below `/webhook/`, encoded except for `:name` parameters; None for an expression.

    n8n prefixes a path with parameters by the webhook id, and that of a node without an id by workflow and node.
    """
    configured = parameters.get("path") or ""
    if not isinstance(configured, str) or configured.startswith("="):
        return None
    webhook_id, path = node.get("webhookId"), configured.strip("/")
    if not isinstance(webhook_id, str) or not webhook_id:
        path = f"{workflow.get('id')}/{str(node.get('name')).lower()}/{path}"
    elif not path:
        path = webhook_id
    elif any(step.startswith(":") for step in path.split("/")):
        path = f"{webhook_id}/{path}"
    steps = path.rstrip("/").split("/")
    return None if not _DOT_SEGMENTS.isdisjoint(steps) else "/".join(quote(step, safe=":") for step in steps)


def _login(parameters: dict[str, Any]) -> str:
    login = parameters.get("authentication")
    return login if isinstance(login, str) and login != "none" else ""


def _notes(
    workflow: dict[str, Any], version: dict[str, Any], node: dict[str, Any], nodes: list[dict[str, Any]]
) -> tuple[str, ...]:
    """Return the node's notes, the descriptions of the workflow, and the sticky notes, in this order."""
    texts = [node.get("notes"), workflow.get("description"), version.get("description")]
    texts.append(as_object(workflow.get("meta")).get("description"))
    stickies = [other for other in nodes if other.get("type") == _STICKY_NOTE]
    texts += [as_object(sticky.get("parameters")).get("content") for sticky in stickies]
    return tuple(text for text in texts if isinstance(text, str) and text.strip())


def _pinned_sample(workflow: dict[str, Any], node: dict[str, Any], method: str) -> Any:
    """Return the body or query of the call that is pinned to the node as test data."""
    items = as_object(workflow.get("pinData")).get(str(node.get("name")))
    first = items[0] if is_array(items) and items else None
    inner = first.get("json", first) if is_object(first) else None
    return inner.get("query" if method in ("GET", "DELETE", "HEAD") else "body") if is_object(inner) else None


def slugify(text: str) -> str:
    """Convert a text to lower-case ASCII letters, digits and underscores; drop accents and other characters."""
    folded = unicodedata.normalize("NFKD", text[:_MAX_SLUG_CHARS].casefold())
    return _NON_ALPHANUMERIC.sub("_", folded.encode("ascii", "ignore").decode().lower()).strip("_")


def tool_names(triggers: Sequence[WebhookTrigger]) -> list[str]:
    """Return a unique tool name for each trigger, in order."""
    names = [
        slugify(trigger.workflow) or f"workflow_{slugify(trigger.workflow_id)}".rstrip("_") for trigger in triggers
    ]
    # Every trigger of a shared name gets the suffix, so that a new workflow never takes over a name in use.
    suffixes: tuple[Callable[[WebhookTrigger], str], ...] = (
        lambda trigger: slugify(trigger.path) or "root",
        lambda trigger: trigger.method.lower(),
        _hash_suffix,
    )
    for suffix in suffixes:
        counts = Counter(names)
        names = [
            f"{name}_{suffix(trigger)}" if counts[name] > 1 else name
            for name, trigger in zip(names, triggers, strict=True)
        ]
    return names


def _hash_suffix(trigger: WebhookTrigger) -> str:
    parts = [trigger.workflow, trigger.workflow_id, trigger.node, trigger.path, trigger.method]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]


Direction = Literal["input", "output"]
MAX_NOTE_CHARS = 50_000
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})([^`]*)$")
_JSON_LANGUAGES = frozenset({"", "json", "jsonc", "json5", "jsonschema", "json-schema", "schema"})
_DIRECTION_WORDS: dict[str, Direction] = {
    "input": "input",
    "request": "input",
    "output": "output",
    "response": "output",
}
_JSON_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_SCHEMA_KEYWORDS = frozenset(
    {
        "additionalProperties", "const", "default", "description", "enum", "examples", "format", "items", "maxItems",
        "maxLength", "maximum", "minItems", "minLength", "minimum", "pattern", "required", "title", "type",
    }
)  # fmt: skip
_MAX_DEPTH = 8
_MAX_FIELDS = 100


class WorkflowNote(NamedTuple):
    """Description and schemas of a note, and the problems found in it."""

    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    problems: tuple[str, ...] = ()


class _Block(NamedTuple):
    """A fenced block: its info string and its text."""

    info: str
    text: str


def parse_note(text: str) -> WorkflowNote:
    """Parse a note; the first schema or sample per direction is used, and an unmarked one is the input."""
    if len(text) > MAX_NOTE_CHARS:
        problem = f"a note of {len(text):,} characters was not read; at most {MAX_NOTE_CHARS:,} are"
        return WorkflowNote(problems=(problem,))
    if text.lstrip().startswith("{"):
        return _parse_json_note(text)
    description, blocks = _split_fences(text)
    schemas: dict[str, JsonSchema] = {}
    problems: list[str] = []
    for block in blocks:
        direction, is_json = _parse_fence_info(block.info)
        if not is_json or direction in schemas:
            continue
        value, problem = _parse_block(block)
        if problem:
            problems.append(problem)
        elif is_object(value):
            schemas[direction] = _schema(value)
    return WorkflowNote(description, schemas.get("input"), schemas.get("output"), tuple(problems))


def _parse_json_note(text: str) -> WorkflowNote:
    """Parse a note that is one JSON object; any other text is the description."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return WorkflowNote(text.strip())
    return WorkflowNote(input_schema=_schema(value)) if is_object(value) else WorkflowNote(text.strip())


def _split_fences(text: str) -> tuple[str, list[_Block]]:
    """Split Markdown into the text outside of fences and the fenced blocks; an unclosed fence ends with the note."""
    outside: list[str] = []
    blocks: list[_Block] = []
    inside: list[str] | None = None
    mark, info = "", ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if inside is None and fence is not None:
            mark, info, inside = fence[1], fence[2].strip(), []
        elif inside is None:
            outside.append(line)
        elif fence is not None and fence[1].startswith(mark) and not fence[2].strip():
            blocks.append(_Block(info, "\n".join(inside)))
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_Block(info, "\n".join(inside)))
    return "\n".join(outside).strip(), blocks


def _parse_fence_info(info: str) -> tuple[Direction, bool]:
    """Return the direction that a fence's info string names, and whether its language is JSON."""
    tokens = [word.strip("()[]{}:,").lower() for word in info.split()]
    directions: list[Direction] = [_DIRECTION_WORDS[word] for word in tokens if word in _DIRECTION_WORDS]
    language = next((word for word in tokens if word not in _DIRECTION_WORDS), "")
    return directions[0] if directions else "input", language in _JSON_LANGUAGES


def _parse_block(block: _Block) -> tuple[Any, str]:
    try:
        return json.loads(block.text), ""
    except (ValueError, RecursionError) as error:
        # A block without a language may be something other than JSON.
        return None, f"its block {block.info!r} is not JSON: {error}" if block.info else ""


def _schema(value: dict[str, Any]) -> JsonSchema:
    return value if _is_schema(value) else infer_schema(value)


def _is_schema(value: dict[str, Any]) -> bool:
    """Return whether an object is a schema and not a sample with a key `type`."""
    if "$schema" in value or "$ref" in value or is_object(value.get("properties")):
        return True
    kind = value.get("type")
    return isinstance(kind, str) and kind in _JSON_TYPES and _SCHEMA_KEYWORDS.issuperset(value)


def infer_schema(value: Any, depth: int = 0) -> JsonSchema:
    """Infer a schema from a sample: types only, nothing required; null allows any value, integers allow fractions."""
    if value is None or depth > _MAX_DEPTH:
        return {}
    if is_object(value):
        fields = list(value.items())[:_MAX_FIELDS]
        return {"type": "object", "properties": {name: infer_schema(inner, depth + 1) for name, inner in fields}}
    if is_array(value):
        return _infer_array(value, depth)
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "string" if isinstance(value, str) else "number"}


def _infer_array(items: list[Any], depth: int) -> JsonSchema:
    """Infer the item schema only if all items have the same one."""
    schemas = [infer_schema(item, depth + 1) for item in items[:_MAX_FIELDS]]
    if not schemas or any(schema != schemas[0] for schema in schemas):
        return {"type": "array"}
    return {"type": "array", "items": schemas[0]}
