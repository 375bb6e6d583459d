"""What the package asks to be installed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def brought(extra: str) -> set[str]:
    """The requirements that an extra comes to, with those of the extras that it names."""
    found = {line for line in EXTRAS[extra] if not line.startswith("toolpost[")}
    named = (line[len("toolpost[") : -1].split(",") for line in EXTRAS[extra] if line not in found)
    return found.union(*(brought(name) for names in named for name in names))


def required() -> set[str]:
    """The names of everything that is installed with the package and its extras."""
    wanted = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in brought(extra))]
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in [*wanted, *pinned] if line}


@pytest.mark.req("GEN-13")
def test_neither_the_mcp_bridge_of_utcp_nor_a_model_generator_is_used() -> None:
    assert required() & {"utcp-mcp", "datamodel-code-generator"} == set()


def test_every_requirement_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {name.replace("_", "-") for name in required()} <= {name.replace("_", "-") for name in pinned}


def test_all_brings_what_every_extra_for_users_brings() -> None:
    each = set[str]().union(*(brought(extra) for extra in EXTRAS if extra not in ("all", "dev", "testing")))

    assert brought("all") == each


@pytest.mark.req("MISC-03", "GEN-11")
def test_the_extras_for_command_lines_and_websockets_bring_what_they_need() -> None:
    assert brought("websocket") < brought("tools-websocket")
    assert any(line.startswith("websockets") for line in brought("tools-websocket"))
    assert "utcp-websocket>=1.0.0" in brought("tools-websocket")
    assert brought("tools-cli") == {"utcp-cli>=1.0.0"}


@pytest.mark.req("GEN-10")
def test_the_extra_for_planners_brings_models_servers_and_apis() -> None:
    names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in brought("planner")}

    assert {"litellm", "fastmcp", "utcp", "utcp-http", "websockets"} <= names


def test_the_extra_for_models_brings_what_litellm_imports_for_a_request_with_tools() -> None:
    assert any(line.startswith("litellm[mcp]") for line in brought("agents"))


# The extras without which the modules of a package are not imported; other modules need what they name alone.
NEEDED = {
    "adapters/arrow_decoding": ["arrow"],
    "adapters/arrow_encoding": ["arrow"],
    "adapters/arrow_tables": ["arrow"],
    "adapters/arrow_type": ["arrow"],
    "adapters/fastmcp": ["mcp"],
    "adapters/langchain": ["langchain"],
    "auth/caller_tokens": ["oauth"],
    "auth/key_storage": ["keyring"],
    "auth/oauth/jose": ["oauth"],
    "auth/secret": ["keyring"],
    "builtin/html_parser_program": ["http"],
    "catalog/search_vectors": ["search"],
    "cli/serve": ["gateway"],
    "cli/tracing": ["telemetry"],
    "console/app": ["gateway"],
    "gateway": ["gateway", "telemetry"],
    "runtime/dbos_consumer": ["scale"],
    "runtime/tracing": ["telemetry"],
    "sources/graphql": ["graphql"],
    "sources/mcp": ["mcp"],
    "sources/workflow": ["workflow"],
    "stores/object_storage": ["objects"],
    "stores/postgres": ["postgres"],
    "testing/simulation/databases": ["postgres"],
    "testing/stores": ["testing"],
    "wire/http1": ["http"],
    "wire/http_server": ["gateway"],
    "wire/tracing": ["telemetry"],
    "wire/unix_http": ["gateway"],
    "wire/websockets": ["websocket"],
}
PART_OF = {"fastmcp-slim": "fastmcp", "pydantic_core": "pydantic"}  # required by the other one
OF_THE_CALLER = {  # imported where the framework runs the tools, so it is there
    ("adapters/agent_framework", "agent-framework"),
    ("adapters/agno", "agno"),
    ("adapters/autogen", "autogen-core"),
    ("adapters/crewai", "crewai"),
    ("adapters/dspy", "dspy"),
    ("adapters/google_adk", "google"),
    ("adapters/haystack", "haystack"),
    ("adapters/langchain", "langgraph"),
    ("adapters/llama_index", "llama-index"),
    ("adapters/llama_index", "llama-index-instrumentation"),
    ("adapters/llama_index", "workflows"),
    ("adapters/openai_agents", "agents"),
    ("adapters/penguiflow", "penguiflow"),
    ("adapters/pydantic_ai", "pydantic-ai-slim"),
    ("adapters/semantic_kernel", "semantic-kernel"),
    ("adapters/smolagents", "smolagents"),
    ("adapters/strands", "strands"),
}


def imported(path: Path) -> Iterator[set[str]]:
    """The distributions that may bring what a module imports at run time, anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            top = name.partition(".")[0]
            if id(node) not in typing and top not in sys.stdlib_module_names and top != "toolpost":
                yield names_of(PART_OF.get(one, one) for one in installed().get(top, [top]))


def test_every_import_is_declared_by_the_core_or_by_the_extra_of_its_module() -> None:
    core = names_of(PROJECT["dependencies"])
    undeclared: list[tuple[str, ...]] = []
    for path in sorted((ROOT / "src/toolpost").rglob("*.py")):
        module = path.relative_to(ROOT / "src/toolpost").with_suffix("").as_posix()
        extras = [
            extra for prefix, extras in NEEDED.items() if f"{module}/".startswith(f"{prefix}/") for extra in extras
        ]
        declared = core.union(*(names_of(brought(extra)) for extra in extras))
        declared |= {name for caller, name in OF_THE_CALLER if caller == module}
        undeclared += [(module, *sorted(brings)) for brings in imported(path) if declared.isdisjoint(brings)]

    assert undeclared == []


@cache
def installed() -> Mapping[str, list[str]]:
    """The distributions that bring each module, which takes a second to find out."""
    return packages_distributions()


def names_of(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in requirements}
