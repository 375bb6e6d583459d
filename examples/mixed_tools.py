"""A Python function, an MCP server and an API with a UTCP manual in one catalog.

Prints:
summarize, github.create_issue, github.list_issues, stripe.forecast, stripe.list_charges
answer_complete: Two issues, one charge.
"""

import asyncio
import os

from pydantic import BaseModel

from examples.servers import web_api
from toolpost.compat.penguiflow.catalog import build_catalog, tool
from toolpost.compat.penguiflow.planner import ReactPlanner, ToolContext
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, ToolNode, TransportType
from toolpost.testing import ScriptedModel, tool_calls


class SummarizeArgs(BaseModel):
    """What is summarized."""

    text: str


class SummarizeResult(BaseModel):
    """The first words of it."""

    summary: str


@tool(desc="Summarize text using local LLM", tags=["local"])
async def summarize(args: SummarizeArgs, ctx: ToolContext) -> SummarizeResult:
    """Cut the text."""
    return SummarizeResult(summary=args.text[:100] + "...")


async def main() -> None:
    """Build the catalog and let the model use a tool of each kind."""
    registry = ModelRegistry()
    os.environ["STRIPE_SECRET_KEY"] = "sk_example"
    github = ToolNode(
        config=ExternalToolConfig(
            name="github",
            transport=TransportType.MCP,
            connection="memory:examples.servers:github",
            trust=True,
        ),
        registry=registry,
    )
    with web_api() as site:
        stripe = ToolNode(
            config=ExternalToolConfig(
                name="stripe",
                transport=TransportType.UTCP,
                connection=f"{site}/.well-known/utcp.json",
                auth_type=AuthType.BEARER,
                auth_config={"token": "${STRIPE_SECRET_KEY}"},
            ),
            registry=registry,
        )
        await github.connect()
        await stripe.connect()
        catalog = [
            *build_catalog([summarize], registry),
            *github.get_tools(),
            *stripe.get_tools(),
        ]
        print(", ".join([catalog[0].name, *sorted(spec.name for spec in catalog[1:])]))
        model = ScriptedModel(
            tool_calls(("github__list_issues", {"repo": "home"}), ("stripe__list_charges", {})),
            tool_calls(("summarize", {"text": "Two issues are open, and one charge was made."})),
            "Two issues, one charge.",
        )
        async with ReactPlanner(catalog=catalog, llm=model, settings={"data_dir": None}) as planner:
            result = await planner.run("What happened today?")
        print(f"{result.reason}: {result.payload['answer']}")
        await github.close()
        await stripe.close()


if __name__ == "__main__":
    asyncio.run(main())
