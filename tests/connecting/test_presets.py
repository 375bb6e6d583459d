"""The presets: what the five are, which others there are, and what is started."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import toolpost
from toolpost import ConfigError, Settings, Toolbox, ToolNode, ToolRegistry
from toolpost.connecting.presets import MORE_MCP_SERVERS, PACKAGES, POPULAR_MCP_SERVERS, get_preset, pinned_preset
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import AuthType, TransportType

EVERY = [*POPULAR_MCP_SERVERS, *MORE_MCP_SERVERS]


@pytest.mark.req("PRE-01")
def test_the_popular_servers_are_exactly_five() -> None:
    assert list(POPULAR_MCP_SERVERS) == ["github", "filesystem", "postgres", "slack", "google-drive"]
    assert all(isinstance(config, ExternalToolConfig) for config in POPULAR_MCP_SERVERS.values())
    assert toolpost.POPULAR_MCP_SERVERS is POPULAR_MCP_SERVERS


def preset(name: str, connection: str, description: str, **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(
        name=name, transport=TransportType.MCP, connection=connection, description=description, **options
    )


@pytest.mark.req("PRE-02", "PRE-05", "PRE-06")
@pytest.mark.parametrize(
    ("name", "connection", "description"),
    [
        ("github", "npx -y @modelcontextprotocol/server-github", "GitHub repositories, issues, pull requests"),
        ("slack", "npx -y @modelcontextprotocol/server-slack", "Slack channels, messages, users"),
        ("google-drive", "npx -y @anthropic/mcp-server-google-drive", "Google Drive files and folders"),
    ],
)
def test_a_server_that_acts_for_a_person_asks_them_to_sign_in(name: str, connection: str, description: str) -> None:
    assert POPULAR_MCP_SERVERS[name] == preset(name, connection, description, auth_type=AuthType.OAUTH2_USER)


@pytest.mark.req("PRE-03", "PRE-04")
@pytest.mark.parametrize(
    ("name", "connection", "description", "env"),
    [
        (
            "filesystem",
            "npx -y @modelcontextprotocol/server-filesystem /data",
            "Read/write local filesystem",
            {},
        ),
        (
            "postgres",
            "npx -y @modelcontextprotocol/server-postgres",
            "Query PostgreSQL databases",
            {"DATABASE_URL": "${DATABASE_URL}"},
        ),
    ],
)
def test_a_server_of_this_machine_needs_no_sign_in(
    name: str, connection: str, description: str, env: dict[str, str]
) -> None:
    assert POPULAR_MCP_SERVERS[name] == preset(name, connection, description, env=env, auth_type=AuthType.NONE)


@pytest.mark.req("PRE-07")
def test_a_preset_is_found_by_its_name_in_either_table() -> None:
    assert toolpost.get_preset("github") is POPULAR_MCP_SERVERS["github"]
    assert get_preset("everything") is MORE_MCP_SERVERS["everything"]


@pytest.mark.req("PRE-07")
def test_an_unknown_preset_is_reported_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"^Unknown preset: gitlab\. Available: \[") as caught:
        get_preset("gitlab")

    assert str(caught.value) == f"Unknown preset: gitlab. Available: {EVERY}"


def test_the_tables_cannot_be_changed_and_no_name_is_in_both() -> None:
    assert len(EVERY) == len(set(EVERY)) == len(PACKAGES)
    for table in (POPULAR_MCP_SERVERS, MORE_MCP_SERVERS):
        with pytest.raises(TypeError):
            table["github"] = get_preset("github")  # type: ignore[index]


@pytest.mark.parametrize("name", [name for name in EVERY if PACKAGES[name].version])
def test_what_is_started_is_one_version_of_one_package(name: str) -> None:
    package, words = PACKAGES[name], shlex.split(pinned_preset(name).connection)

    launcher = {"npm": ["npx", "-y"], "PyPI": ["uvx"]}[package.ecosystem]
    assert words[: len(launcher) + 1] == [*launcher, f"{package.name}@{package.version}"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.version or "")
    assert pinned_preset(name).description == get_preset(name).description


@pytest.mark.parametrize("name", [name for name in POPULAR_MCP_SERVERS if name != "postgres"])
def test_but_for_its_version_a_popular_server_is_started_as_its_preset_says(name: str) -> None:
    package = PACKAGES[name]

    assert POPULAR_MCP_SERVERS[name].connection == f"npx -y {package.name} {package.arguments}".rstrip()


def test_the_postgres_server_gets_its_address_where_it_looks_for_it() -> None:
    assert shlex.split(pinned_preset("postgres").connection)[-1] == "${DATABASE_URL}"


def test_other_arguments_take_the_place_of_the_preset_s_own() -> None:
    words = shlex.split(pinned_preset("filesystem", ["/home/ann/my notes", "/srv"]).connection)

    assert words[3:] == ["/home/ann/my notes", "/srv"]


def test_a_package_that_no_one_publishes_is_not_started() -> None:
    with pytest.raises(ValueError, match="is not on npm") as caught:
        pinned_preset("google-drive")

    assert str(caught.value) == (
        'preset "google-drive": the package @anthropic/mcp-server-google-drive is not on npm; '
        "connect the preset gdrive (@modelcontextprotocol/server-gdrive), or another server by its command or its URL"
    )


async def test_a_source_of_such_a_package_says_so_at_once() -> None:
    said = "the package @anthropic/mcp-server-google-drive is not on npm; connect the preset gdrive"
    with pytest.raises(ConfigError, match=said):
        ToolNode(config=get_preset("google-drive"), registry=ToolRegistry())
    async with Toolbox(settings=Settings(data_dir=None, sources=[get_preset("google-drive")])) as box:
        [state] = await box.wait_for_sources()
    assert said in str(state.error)


def test_the_documents_list_every_preset_with_its_package_and_what_it_reads() -> None:
    page = (Path(__file__).parents[2] / "docs" / "connecting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (npm|PyPI) `([^`]+)`,? ([^|]*?) \| (.*?) ?\|$", page, re.MULTILINE)

    documented = {
        name: (ecosystem, package, version, tuple(re.findall(r"`(\w+)`", reads)))
        for name, ecosystem, package, version, reads in rows
    }
    assert documented == {
        name: (package.ecosystem, package.name, package.version or "which is not published", package.reads)
        for name, package in PACKAGES.items()
    }
