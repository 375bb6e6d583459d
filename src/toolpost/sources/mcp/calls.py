"""Run tool calls: send the request, report progress, pause for elicitations, and convert the result."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from typing import TYPE_CHECKING, Any, cast

from mcp_types import ElicitResult

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.contracts.questions import Question
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.mcp.elicitation import (
    CANCELLED,
    ELICIT,
    build_question,
    build_responses,
    elicitation_answers,
    next_question_number,
    parse_input_required,
    parse_url_elicitations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.shared.dispatcher import ProgressFnT

    from toolpost.contracts.calls import AuthorizedCall
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import ToolSpec
    from toolpost.sources.mcp.callbacks import ClientCapabilities
    from toolpost.sources.mcp.elicitation import InputRequired
    from toolpost.sources.mcp.session import McpSession
    from toolpost.sources.mcp.tools import ServerTool

_MAX_ROUNDS = 10
_MAX_HOLD_S = 900.0
_MIN_PROGRESS_INTERVAL_S = 0.05  # limits the rate of progress events


class McpCalls:
    """Runs the tool calls of one source."""

    def __init__(self, source: str, capabilities: ClientCapabilities, *, elicitation: bool) -> None:
        self._source = source
        self._capabilities = capabilities
        self._elicitation = elicitation

    async def run(self, session: McpSession, tool: ServerTool, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a tool and return its output, or a question of the server."""
        params: dict[str, Any] = {"name": tool.remote_name, "arguments": call.arguments}
        try:
            raw = await self._send(session, tool, call, params)
        except ToolClientError as error:
            question = self._ask_to_open_pages(error, call) if self._elicitation else None
            if question is None:
                raise
            return question
        return raw if isinstance(raw, Question) else await parse_result(raw, call.context)

    async def _send(
        self, session: McpSession, tool: ServerTool, call: AuthorizedCall, params: dict[str, Any]
    ) -> dict[str, Any] | Question:
        if session.client_session.modern:
            if tool.has_header_arguments:
                session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
            return await self._run_modern(session, call, params)
        if self._elicitation:
            return await self._run_legacy(session, tool, call, params)
        return await session.request("tools/call", params, on_progress=_progress_callback(call.context))

    def _ask_to_open_pages(self, error: ToolClientError, call: AuthorizedCall) -> Question | None:
        """Build the question of a server that refuses, without effect, until a person has visited its pages."""
        pages = parse_url_elicitations(error.__cause__)
        if not pages:
            return None
        number = next_question_number(call.request.answers)
        return build_question(self._source, pages, {"pages": True}, number=number, deliver_denial=False)

    async def _run_modern(
        self, session: McpSession, call: AuthorizedCall, params: dict[str, Any]
    ) -> dict[str, Any] | Question:
        """Call a tool in the stateless protocol: each retry carries all answers and the server's state."""
        answers = elicitation_answers(call.request.answers)
        request = {**params, **_retry_params(answers[-1])} if answers and "people" in answers[-1].state else params
        on_progress = _progress_callback(call.context)
        for round_number in range(_MAX_ROUNDS):
            raw = await session.request("tools/call", request, on_progress=on_progress)
            if raw.get("resultType", "complete") == "complete":
                return raw
            needed = self._parse_needed_input(raw)
            responses = {
                key: await self._answer_client_request(request) for key, request in needed.client_requests.items()
            }
            if needed.elicitations:
                # Stored with the paused call, so these keys stay as they are.
                state = {"people": needed.elicitations, "lent": responses, "request_state": needed.state}
                number = next_question_number(call.request.answers)
                return build_question(self._source, needed.elicitations, state, number=number)
            request = {**params, **_input_params(responses, needed.state)}
            if not responses:
                await asyncio.sleep(min(1.0, 0.1 * 2**round_number))  # the server needs time, not input
        raise ToolClientError(f"MCP tool error: {self._source!r} still needs input after {_MAX_ROUNDS} rounds")

    def _parse_needed_input(self, raw: dict[str, Any]) -> InputRequired:
        """Parse a result that asks for input; raise when that input is not on offer."""
        if raw["resultType"] != "input_required":
            raise ToolOutputError(f"the MCP server's answer is of a kind that is not known: {raw['resultType']!r}")
        needed = parse_input_required(raw)
        if needed.elicitations and not self._elicitation:
            raise ToolClientError(f"MCP tool error: {self._source!r} wants to ask a person, which is not on offer here")
        return needed

    async def _answer_client_request(self, request: dict[str, Any]) -> dict[str, Any]:
        response = await self._capabilities.handle_request(request)
        if response is None:
            method = request.get("method")
            raise ToolClientError(f"MCP tool error: {self._source!r} asks for {method!r}, which is not on offer here")
        return response

    async def _run_legacy(
        self, session: McpSession, tool: ServerTool, call: AuthorizedCall, params: dict[str, Any]
    ) -> dict[str, Any] | Question:
        """Call a tool in the older protocol: continue a held call, or start one unless its first run was lost."""
        in_flight = session.calls.find_held(call.request.call_id)
        if in_flight is not None:
            last = elicitation_answers(call.request.answers)[-1]
            in_flight.resolve(last.state["params"], last)
        elif (question := ask_lost_call_outcome(call, tool.spec, self._source)) is not None:
            return question
        else:
            request = session.request("tools/call", params, on_progress=_progress_callback(call.context))
            in_flight = session.calls.begin(call, request)
        elicitation = await in_flight.next_question()
        if elicitation is None:
            return await in_flight.result()
        elicitations = {"": {"method": ELICIT, "params": elicitation}}
        number = next_question_number(call.request.answers)
        try:
            return build_question(self._source, elicitations, {"params": elicitation}, number=number, held=True)
        except ToolClientError:
            in_flight.cancel()
            raise

    async def handle_elicitation(self, session: McpSession, context: Any, params: Any) -> ElicitResult:
        """Handle an elicitation of an older session; return when a person has answered."""
        raw: dict[str, Any] = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        in_flight = session.calls.find_asker()
        response = CANCELLED if in_flight is None else await in_flight.elicit(raw, hold_s=_MAX_HOLD_S)
        return ElicitResult.model_validate(response)


def ask_lost_call_outcome(call: AuthorizedCall, spec: ToolSpec, source: str) -> Question | None:
    """Build the question whether a held call whose session is gone had its effect; None when it may run again.

    A permission to run again counts once: it is bound to the number of answers known when it was given.
    """
    answers = elicitation_answers(call.request.answers)
    if spec.replay != "unsafe" or not answers or "params" not in answers[-1].state:
        return None
    state = {"rounds": len(answers)}
    permission = call.request.answers.get("unknown")
    if permission is not None and permission.state == state:
        return None
    prompt = f"{spec.name} was interrupted while {source} waited for an answer. Did it happen?"
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown", state=state)


def _retry_params(answer: Answer) -> dict[str, Any]:
    """Build the responses of the last round, with the server's state unchanged."""
    state = answer.state
    return _input_params({**state["lent"], **build_responses(state["people"], answer)}, state["request_state"])


def _input_params(responses: dict[str, Any], state: str | None) -> dict[str, Any]:
    return {
        **({"inputResponses": responses} if responses else {}),
        **({} if state is None else {"requestState": state}),
    }


def _progress_callback(context: Callable[[], ToolContext]) -> ProgressFnT:
    last = 0.0

    async def report(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _MIN_PROGRESS_INTERVAL_S and progress != total:
            return
        last = now
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        context().progress(text, fraction=None if not total else progress / total)

    return report


async def run_utility(
    session: McpSession, name: str, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
) -> ToolOutput:
    """Run a utility tool by name."""
    match name:
        case "resources_list":
            resources = await session.list_all("resources/list", "resources")
            return ToolOutput({"resources": resources, "templates": await _list_templates(session)})
        case "resources_read":
            return await read_resource(session, str(arguments["uri"]), context)
        case "prompts_list":
            return ToolOutput({"prompts": await session.list_all("prompts/list", "prompts")})
        case _:
            params = {"name": arguments["name"], "arguments": dict(arguments.get("arguments") or {})}
            raw = await session.request("prompts/get", params)
            return ToolOutput({key: raw[key] for key in ("description", "messages") if key in raw})


async def _list_templates(session: McpSession) -> list[Any]:
    """List the resource templates; none when the server does not know the method."""
    try:
        return await session.list_all("resources/templates/list", "resourceTemplates")
    except ToolClientError:
        return []


async def read_resource(session: McpSession, uri: str, context: Callable[[], ToolContext]) -> ToolOutput:
    """Read a resource; files become artifacts."""
    raw = await session.request("resources/read", {"uri": uri})
    contents = cast("list[Any]", raw.get("contents") or [])
    return await parse_result({"content": [{"type": "resource", "resource": held} for held in contents]}, context)


async def parse_result(raw: dict[str, Any], context: Callable[[], ToolContext]) -> ToolOutput:
    """Convert the result of a tools/call; raise ToolClientError when it reports an error."""
    blocks = _blocks(raw)
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not raw.get("isError"):
        text = str(blocks[0].get("text", ""))  # the most common result
        structured = raw.get("structuredContent")
        return ToolOutput(_parse_json_text(text), text) if structured is None else ToolOutput(structured, text or None)
    if raw.get("isError"):
        raise ToolClientError(f"MCP tool error: {_error_text(raw, blocks)}", code="tool_reported_error")
    return await _combine_parts(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    return [block for block in content if is_object(block)]


def _error_text(raw: dict[str, Any], blocks: list[dict[str, Any]]) -> str:
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
    structured = raw.get("structuredContent")
    if structured is not None and not text:
        text = json.dumps(structured)[:2000]
    return text or "the tool reported a failure without saying why"


async def _combine_parts(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": json.dumps(structured, ensure_ascii=False)})  # for the model
    text = "\n".join(_render_part(part, named=len(parts) > 1) for part in parts)
    if structured is not None:
        return ToolOutput(structured, text)
    if all(part.get("type") == "text" for part in parts):
        return ToolOutput(text, text)
    return ToolOutput(parts, text)


async def _part(block: dict[str, Any], context: Callable[[], ToolContext]) -> dict[str, Any]:
    """Convert a content block to plain data; a file's bytes are replaced by an artifact id."""
    file = _file(block)
    if file is None:
        inner = block.get("resource")
        return {"type": "resource", **inner} if is_object(inner) else block
    data, media_type, name = file
    artifact_id = await context().save_artifact(data, media_type=media_type, name=name)
    kept: dict[str, Any] = {"type": block["type"], "artifact_id": artifact_id, "media_type": media_type}
    return {**kept, "size": len(data), **({"uri": name} if name else {})}


def _file(block: dict[str, Any]) -> tuple[bytes, str, str] | None:
    """Return the bytes, media type and name of a block that contains a file."""
    kind, inner = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _decode_base64(block.get("data")), str(block.get("mimeType", "application/octet-stream")), ""
    if kind == "resource" and is_object(inner) and "blob" in inner:
        media_type = str(inner.get("mimeType", "application/octet-stream"))
        return _decode_base64(inner["blob"]), media_type, str(inner.get("uri", ""))
    return None


def _decode_base64(data: Any) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (AttributeError, binascii.Error, TypeError, ValueError) as error:
        raise ToolOutputError(f"the MCP server's answer holds a file that is not base64: {error}") from error


def _render_part(part: dict[str, Any], *, named: bool) -> str:
    """Render a part as text for the model; `named` puts the URI before a resource's text."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


def _parse_json_text(text: str) -> Any:
    """Parse a text that is a whole JSON object or array; return any other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
