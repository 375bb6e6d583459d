"""The nodes MCP Tool Provider, Workflow to Tool and Agent Prompter; only KNIME imports this module."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, get_args

from toolpost.adapters.credentials import NamedCredential
from toolpost.adapters.prompter import PolicyName, prompt_agent
from toolpost.adapters.provider import list_server_tools
from toolpost.adapters.stored_tools import AnyToolValue, StoredTool
from toolpost.adapters.workflows import workflow_tool
from toolpost.contracts.errors import ToolError
from toolpost.toolbox.blocking import EventLoopThread

knext: Any = import_module("knime.extension")  # has no types

CATEGORY = knext.category(
    path="/community",
    level_id="toolpost",
    name="Toolpost",
    description="Tools for agents: MCP servers and workflows in tables.",
    icon="icons/toolpost.png",
)
_KEYWORDS = ["AI", "Agent", "GenAI", "LLM", "MCP", "Model Context Protocol", "Tool"]


def _is_tool(column: Any) -> bool:
    return bool(column.ktype == knext.logical(StoredTool))


def _credential_choices(context: Any) -> list[str]:
    return ["", *context.get_credential_names()]


def _tool_schema(column: str) -> Any:
    return knext.Schema.from_columns([knext.Column(knext.logical(StoredTool), column)])


def _tool_table(values: list[Any], column: str) -> Any:
    pandas: Any = import_module("pandas")
    return knext.Table.from_pandas(pandas.DataFrame({column: pandas.Series(values, dtype=object)}))


def _require_text(value: str, label: str) -> str:
    if not value.strip():
        raise knext.InvalidParametersError(f"{label} must not be empty")
    return value.strip()


def _credential(context: Any, name: str, origin: str) -> NamedCredential:
    """Return a KNIME credential under its name, for one server."""
    credential = context.get_credentials(name)
    factor = getattr(credential, "second_authentication_factor", None)
    return NamedCredential(name, credential.username or "", credential.password or "", factor or "", origin=origin)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _origins(text: str) -> dict[str, str]:
    """Return the origin of each credential, from lines `NAME ORIGIN`."""
    pairs = [line.rpartition(" ") for line in _lines(text)]
    if wrong := [origin for name, _, origin in pairs if not name.strip()]:
        raise knext.InvalidParametersError(f"Credentials: write a name and an origin on each line, not {wrong[0]!r}")
    return {name.strip(): origin for name, _, origin in pairs}


@knext.node(
    name="MCP Tool Provider",
    node_type=knext.NodeType.SOURCE,
    icon_path="icons/mcp_tool_provider.png",
    category=CATEGORY,
    keywords=_KEYWORDS,
)
@knext.output_table(name="Tools", description="The tools of the server, one per row.")
class McpToolProvider:
    """Lists the tools of an MCP server.

    Connects to a server of the Model Context Protocol and outputs its tools as a table with one tool per row.
    Tables of several servers, and those of Workflow to Tool, can be concatenated.
    """

    server_url = knext.StringParameter("Server URL", "The address of the MCP server, over SSE or streamable HTTP.", "")
    credentials = knext.StringParameter(
        "Credentials",
        "The credentials of the server. Only their name is stored in the table.",
        "",
        choices=_credential_choices,
    )
    schema_profile = knext.StringParameter(
        "Parameters",
        "With `simple`, only parameters that are strings or numbers are kept, and tools that need others are marked as "
        "unsupported.",
        "full",
        enum=["full", "simple"],
    )
    column_name = knext.StringParameter("Tool column name", "The name of the column with the tools.", "Tool")

    def configure(self, _context: Any) -> Any:
        """Return the schema of the table without connecting to the server."""
        _require_text(self.server_url, "Server URL")
        return _tool_schema(_require_text(self.column_name, "Tool column name"))

    def execute(self, context: Any) -> Any:
        """List the tools of the server."""
        try:
            credential = _credential(context, self.credentials, self.server_url) if self.credentials else None
            with EventLoopThread() as thread:
                listing = thread.run(
                    list_server_tools(self.server_url, schema_profile=self.schema_profile, credential=credential)
                )
        except ToolError as error:
            raise knext.InvalidParametersError(str(error)) from error
        for problem in listing.problems:
            context.set_warning(problem)
        return _tool_table(list(listing.tools), self.column_name)


@knext.node(
    name="Workflow to Tool",
    node_type=knext.NodeType.SOURCE,
    icon_path="icons/workflow_to_tool.png",
    category=CATEGORY,
    keywords=[*_KEYWORDS, "Workflow"],
)
@knext.output_table(name="Tool", description="The workflow as a tool.")
class WorkflowToTool:
    """Converts a workflow to a tool.

    Reads a workflow of Toolpost, a YAML file of steps that call tools, and outputs it as a tool: the workflow itself is
    stored in the table.
    """

    workflow_file = knext.StringParameter("Workflow file", "The path of the YAML file.", "")
    column_name = knext.StringParameter("Tool column name", "The name of the column with the tool.", "Tool")

    def configure(self, _context: Any) -> Any:
        """Return the schema of the table; the file is not read."""
        _require_text(self.workflow_file, "Workflow file")
        return _tool_schema(_require_text(self.column_name, "Tool column name"))

    def execute(self, _context: Any) -> Any:
        """Pack the workflow."""
        try:
            return _tool_table([workflow_tool(self.workflow_file.strip())], self.column_name)
        except ToolError as error:
            raise knext.InvalidParametersError(str(error)) from error


@knext.node(
    name="Agent Prompter",
    node_type=knext.NodeType.PREDICTOR,
    icon_path="icons/agent_prompter.png",
    category=CATEGORY,
    keywords=_KEYWORDS,
)
@knext.input_table(name="Tools", description="A table with a column of tools, which may be of different types.")
@knext.output_table(name="Conversation", description="The messages of the conversation, one per row.")
class AgentPrompter:
    """Lets a chat model answer a prompt with the tools of a table.

    The model calls tools until it has an answer. Results and errors of calls are messages of the conversation.
    """

    tool_column = knext.ColumnParameter(
        "Tool column", "The column with the tools; by default the last one with tools.", column_filter=_is_tool
    )
    model = knext.StringParameter("Model", "The name of a chat model, or URL#NAME of a server that offers it.", "")
    system_message = knext.MultilineStringParameter("System message", "Instructions for the model.", "")
    prompt = knext.MultilineStringParameter("Prompt", "What is asked.", "")
    policy = knext.StringParameter(
        "Policy",
        "The calls that require approval. No one can approve while the node runs, so such calls are not made; "
        "`exploratory` allows all.",
        "standard",
        enum=list(get_args(PolicyName)),
    )
    servers = knext.MultilineStringParameter(
        "Servers",
        "The addresses of the servers that tools of the table may use, one per line. Tools of other servers are "
        "skipped with a warning.",
        "",
    )
    credentials = knext.MultilineStringParameter(
        "Credentials",
        "Names of credentials that tools of the table may use, one per line, each followed by the origin that "
        "gets it, such as `crm https://crm.example.com`.",
        "",
    )
    trust_rows = knext.BoolParameter(
        "Trust the table",
        "Also use the servers and workflows that the table names. Commands are not started: they cannot be approved "
        "while the node runs.",
        False,  # noqa: FBT003 - as KNIME has it
    )

    def configure(self, _context: Any, tools: Any) -> Any:
        """Return the schema of the conversation without calling the model or a server."""
        _require_text(self.model, "Model")
        _require_text(self.prompt, "Prompt")
        _origins(self.credentials)
        self._column(tools)
        return knext.Schema.from_columns([knext.Column(knext.string(), name) for name in ("Role", "Content", "Tools")])

    def execute(self, context: Any, tools: Any) -> Any:
        """Run the conversation."""
        cells: list[Any] = tools.to_pandas()[self._column(tools.schema)].tolist()
        values: list[AnyToolValue] = [cell for cell in cells if isinstance(cell, get_args(AnyToolValue))]
        origins, problems = _origins(self.credentials), list[str]()
        try:
            with EventLoopThread() as thread:
                messages = thread.run(
                    prompt_agent(
                        self.prompt,
                        values,
                        model=self.model,
                        instructions=self.system_message,
                        policy=self.policy,
                        servers=_lines(self.servers),
                        trust_rows=self.trust_rows,
                        credentials=lambda name: _credential(context, name, origins.get(name, "")),
                        on_problem=problems.append,
                    )
                )
        except ToolError as error:
            raise knext.InvalidParametersError(str(error)) from error
        if problems:
            context.set_warning("\n".join(problems))
        pandas: Any = import_module("pandas")
        return knext.Table.from_pandas(pandas.DataFrame([_row(message) for message in messages]))

    def _column(self, schema: Any) -> str:
        """Return the chosen column, or by default the last one with tools."""
        names: list[str] = [column.name for column in schema if _is_tool(column)]
        chosen: str | None = self.tool_column
        if not names:
            raise knext.InvalidParametersError("The table has no column of tools")
        if chosen and chosen not in names:
            raise knext.InvalidParametersError(f"The table has no tool column {chosen!r}; it has {', '.join(names)}")
        return chosen or names[-1]


def _row(message: dict[str, Any]) -> dict[str, str]:
    calls: list[Any] = message.get("tool_calls") or []
    called: list[str] = [call["function"]["name"] for call in calls]
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content) if content else ""
    return {"Role": message["role"], "Content": text, "Tools": ", ".join(called)}
