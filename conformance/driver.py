"""The client under test: what the conformance suite starts, once for each scenario, with its server's address.

It uses Toolpost by its front door, as an application would: a Toolbox with one MCP source. Where the server wants to
know who calls, the source is one for people's own accounts, and `person.py` signs in.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from conformance.person import DOCUMENT_URL, REDIRECT_URI, SOURCE, USER, Person, account_of
from toolpost import Failed, Outcome, Paused, Toolbox, ToolError
from toolpost.configuration.settings import AccountSettings, NetworkSettings, Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType, TransportType

DEADLINE_S = 90.0  # the suite is less patient; this is for a driver that outlives it

Routine = Callable[[Toolbox], Awaitable[None]]


async def drive(scenario: str, url: str) -> None:
    """Do what a scenario asks for; most want every tool called once."""
    signs_in = scenario.startswith("auth/")
    config = ExternalToolConfig(
        name=SOURCE,
        transport=TransportType.MCP,
        connection=url,
        required=not signs_in,
        auth_type=AuthType.OAUTH2_USER if signs_in else AuthType.NONE,
        auth_config=account_of(scenario, _context()) if signs_in else {},
    )
    settings = Settings(
        data_dir=None,
        policy="exploratory",
        builtins="none",
        startup_wait_s=DEADLINE_S / 3,  # whoever signs in must have heard first what the server wants
        sources=[config],
        network=NetworkSettings(allow_private=True),
        accounts=AccountSettings(redirect_uri=REDIRECT_URI, document_url=DOCUMENT_URL),
    )
    async with asyncio.timeout(DEADLINE_S), Toolbox(settings=settings) as box:
        for problem in box.problems:
            _say(problem)
        routine = sign_in_and_call if signs_in else ROUTINES.get(scenario, call_every_tool)
        await routine(box)


async def call_every_tool(box: Toolbox) -> None:
    """Call every tool with the least that its schema asks for."""
    for spec in box.registry.specs():
        await call(box, spec.name, sample(spec.input_schema))


async def sign_in_and_call(box: Toolbox) -> None:
    """Connect an account, which brings the tools, and call them; a call may ask for another consent."""
    person = Person(box)
    await person.connect()
    for spec in box.registry.specs():
        await person.settle(await box.call(spec.name, sample(spec.input_schema), user=USER))


async def call_as_told(box: Toolbox) -> None:
    """Make the calls that the suite wants made; a null for what may be left out is left out."""
    for wanted in _context()["toolCalls"]:
        given = {name: value for name, value in wanted["arguments"].items() if value is not None}
        await call(box, f"{SOURCE}.{wanted['name']}", given)


async def echo_schema(box: Toolbox) -> None:
    """Hand back the one tool's schema as the catalog keeps it."""
    schema = box.registry.find(f"{SOURCE}.json_schema_2020_12_tool").tool.spec.input_schema
    await call(box, f"{SOURCE}.json_schema_echo", {"schema": schema})


async def answer_between_calls(box: Toolbox) -> None:
    """Leave a question open while another tool is called, then answer it."""
    asked = await box.call(f"{SOURCE}.test_mrtr_echo_state", user=USER)
    await call(box, f"{SOURCE}.test_mrtr_unrelated", {})
    await finish(box, asked)
    await call(box, f"{SOURCE}.test_mrtr_no_state", {})
    await call(box, f"{SOURCE}.test_mrtr_no_result_type", {})


async def use_all_that_is_offered(box: Toolbox) -> None:
    """Read every resource and fill in every prompt, beside calling the tools."""
    for resource in (await call(box, f"{SOURCE}.resources_list", {}))["resources"]:
        await call(box, f"{SOURCE}.resources_read", {"uri": resource["uri"]})
    for prompt in (await call(box, f"{SOURCE}.prompts_list", {}))["prompts"]:
        await call(box, f"{SOURCE}.prompts_get", {"name": prompt["name"]})
    await call(box, f"{SOURCE}.test_headers", {})
    await call(box, f"{SOURCE}.my-hyphenated-tool", {})


async def list_tools_only(box: Toolbox) -> None:
    """Opening the Toolbox has listed them."""
    _say(f"{len(box.registry.specs())} tools")


ROUTINES: dict[str, Routine] = {
    "http-custom-headers": call_as_told,
    "http-standard-headers": use_all_that_is_offered,
    "json-schema-2020-12-preservation": echo_schema,
    "json-schema-ref-no-deref": list_tools_only,
    "sep-2322-client-request-state": answer_between_calls,
}


async def call(box: Toolbox, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call a tool and see the call through to its end; its result."""
    return await finish(box, await box.call(name, arguments, user=USER))


async def finish(box: Toolbox, outcome: Outcome) -> Any:
    """Answer whatever is asked until the call has ended; one that failed fails the scenario."""
    while isinstance(outcome, Paused):
        _say(f"{outcome.tool_name} asks: {outcome.question.prompt}")
        outcome = await box.answer(outcome.pending_id, accepted(outcome.question), by=USER)
    if isinstance(outcome, Failed):
        raise SystemExit(f"{outcome.tool_name} failed: {outcome.error}")
    _say(f"{outcome.tool_name}: {json.dumps(outcome.content)[:200]}")
    return outcome.content


def accepted(question: Question) -> dict[str, Any]:
    """The form as a person sends it who fills in no more than must be."""
    return sample(question.answer_schema or {})


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The least that fits a schema of plain properties."""
    properties = schema.get("properties", {})
    return {name: _value(properties[name]) for name in schema.get("required", ())}


def _value(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    samples: dict[str, Any] = {"integer": 1, "number": 2.5, "boolean": True, "array": [], "object": {}, "null": None}
    return samples.get(schema.get("type", "string"), "text")


def _context() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    """Run as the suite wants: the server's address is the last argument, the scenario stands in the environment."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    try:
        asyncio.run(drive(scenario, sys.argv[-1]))
    except ToolError as error:
        raise SystemExit(f"{scenario}: {error}") from error


if __name__ == "__main__":
    main()
