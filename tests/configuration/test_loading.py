"""From a file to settings: where it is found, what its paths mean, what is said when it is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from toolpost.configuration.loading import LoadedSettings, load_settings
from toolpost.contracts.errors import ConfigError

Load = Callable[..., LoadedSettings]

EXAMPLE = """
data_dir: .toolpost
policy: standard
builtins: all
sources:
  - {name: github, transport: mcp, connection: "npx -y @modelcontextprotocol/server-github", env: {GITHUB_TOKEN: "${GITHUB_TOKEN}"}}
  - {name: stripe, transport: http, connection: ./stripe.yaml, auth_type: bearer, auth_config: {token: "${STRIPE_KEY}"}}
  - {name: local, transport: python, connection: ./tools.py}
tools:
  timeout: 30000
  maxConcurrent: 3
  allowedPaths: ["./data", "./docs", "./src"]
  webSearch: {provider: "tavily", apiKey: "${WEB_SEARCH_API_KEY}", maxResults: 10}
  mcpServers:
    - {name: "filesystem", transport: stdio, command: npx, args: ["-y", "server", "/tmp"], env: {}, cwd: ., enabled: true}
    - {name: "remote", transport: sse, url: "http://localhost:3000/sse", enabled: false}
network: {allow_hosts: [], allow_private: false}
"""  # noqa: E501 - a file as people write it
VARIABLES = {"GITHUB_TOKEN": "gh-token", "STRIPE_KEY": "sk-live", "WEB_SEARCH_API_KEY": "tvly-key"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str, **environ: str) -> LoadedSettings:
        (tmp_path / "toolpost.yaml").write_text(text)
        return load_settings(None, cwd=tmp_path, environ=environ)

    return write_and_load


@pytest.mark.req("PCFG-01", "PCFG-02", "PCFG-03")
def test_limits_and_paths_of_the_documented_file_are_read(load: Load, tmp_path: Path) -> None:
    text = EXAMPLE.replace("timeout: 30000", "timeout: 20000").replace("maxConcurrent: 3", "maxConcurrent: 5")

    usual, changed = load(EXAMPLE, **VARIABLES).settings.tools, load(text, **VARIABLES).settings.tools

    assert (usual.timeout, usual.max_concurrent) == (30_000, 3)
    assert (changed.timeout, changed.max_concurrent) == (20_000, 5)
    assert usual.allowed_paths == [tmp_path / "data", tmp_path / "docs", tmp_path / "src"]


@pytest.mark.req("PCFG-04", "PCFG-05", "PCFG-06")
def test_servers_search_and_variables_of_the_documented_file_are_read(load: Load) -> None:
    loaded = load(EXAMPLE, **VARIABLES)

    tools = loaded.settings.tools
    assert (tools.web_search.provider, tools.web_search.max_results) == ("tavily", 10)
    assert tools.web_search.api_key is not None
    assert tools.web_search.api_key.get_secret_value() == "tvly-key"
    assert [(server.name, server.enabled) for server in tools.mcp_servers] == [("filesystem", True), ("remote", False)]
    assert loaded.settings.sources[0].env == {"GITHUB_TOKEN": "gh-token"}
    assert loaded.secrets == set(VARIABLES.values())


def test_the_defaults_hold_without_a_file(tmp_path: Path) -> None:
    loaded = load_settings(None, cwd=tmp_path, environ={})

    assert loaded.path is None
    assert loaded.settings.policy == "standard"
    assert loaded.settings.data_dir == tmp_path / ".toolpost"


@pytest.mark.req("PCFG-03")
def test_only_the_folder_data_is_allowed_when_no_paths_are_given(load: Load, tmp_path: Path) -> None:
    assert load_settings(None, cwd=tmp_path).settings.tools.allowed_paths == [tmp_path / "data"]
    assert load("tools: {timeout: 5s}").settings.tools.allowed_paths == [tmp_path / "data"]
    assert load("tools: {allowedPaths: []}").settings.tools.allowed_paths == []


def test_paths_are_relative_to_the_file_and_not_to_the_working_folder(tmp_path: Path) -> None:
    home = tmp_path / "project"
    home.mkdir()
    (home / "toolpost.yaml").write_text(EXAMPLE)

    loaded = load_settings(Path("project/toolpost.yaml"), cwd=tmp_path, environ=VARIABLES)

    github, stripe, local = loaded.settings.sources
    assert loaded.path == home / "toolpost.yaml"
    assert loaded.settings.data_dir == home / ".toolpost"
    assert github.connection == "npx -y @modelcontextprotocol/server-github"
    assert (stripe.connection, local.connection) == (str(home / "stripe.yaml"), str(home / "tools.py"))
    assert loaded.settings.tools.mcp_servers[0].cwd == str(home)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{transport: python, connection: my.tools}", "my.tools"),
        ("{transport: python, connection: tools.py}", "{here}/tools.py"),
        ("{transport: python, connection: ../tools}", "{above}/tools"),
        ("{transport: http, connection: 'https://a.test/spec.json'}", "https://a.test/spec.json"),
        ("{transport: utcp, connection: manual.json}", "{here}/manual.json"),
        ("{transport: python, connection: /abs/tools.py}", "/abs/tools.py"),
        ("{transport: cli, connection: ./run.py}", "./run.py"),
    ],
)
def test_a_connection_is_a_path_when_it_is_written_as_one(load: Load, tmp_path: Path, written: str, meant: str) -> None:
    source = load(f"sources: [{{name: a, {written[1:]}]").settings.sources[0]

    assert source.connection == meant.format(here=tmp_path, above=tmp_path.parent)


def test_the_folder_of_a_source_is_relative_to_the_file(load: Load, tmp_path: Path) -> None:
    text = "sources: [{name: a, transport: cli, connection: ls, cwd: sub}]"

    assert load(text).settings.sources[0].cwd == str(tmp_path / "sub")


@pytest.mark.parametrize(
    ("source", "here"),
    [
        ("{transport: cli, connection: ls}", True),
        ("{transport: cli, connection: ls, options: {manual: tools.json}}", False),
        ("{transport: mcp, connection: server}", False),
    ],
    ids=["command", "manual", "mcp"],
)
def test_a_command_runs_in_the_folder_of_the_file(load: Load, tmp_path: Path, source: str, *, here: bool) -> None:
    found = load(f"sources: [{{name: a, {source[1:]}]").settings.sources[0]

    assert found.cwd == (str(tmp_path) if here else None)


def test_the_file_of_a_retriever_is_relative_to_the_configuration(load: Load, tmp_path: Path) -> None:
    text = "tools: {retrieval: {chain: [{provider: embedded, path: notes.db}]}}"

    assert load(text).settings.tools.retrieval.chain[0].path == tmp_path / "notes.db"


def test_a_home_folder_is_expanded_and_an_unknown_one_is_a_name(load: Load, tmp_path: Path) -> None:
    assert load("data_dir: ~/x").settings.data_dir == Path.home() / "x"
    assert load("data_dir: ~no-such-user/x").settings.data_dir == tmp_path / "~no-such-user/x"


def test_no_data_folder_means_memory(load: Load) -> None:
    assert load("data_dir: null").settings.data_dir is None


def test_secrets_written_into_the_file_are_known_too(load: Load) -> None:
    loaded = load(
        """
        sources:
        - {name: a, transport: http, connection: "https://a.test", auth_type: api_key,
           auth_config: {api_key: key-of-a, header: X-Key, extra: {client_secret: deep-one}},
           env: {GH_TOKEN: tok-en, PORT: "8080"}}
        tools:
          webSearch: {apiKey: tvly-key, chain: [{provider: brave, apiKey: brave-key}]}
          webFetch: {chain: [{provider: jina, apiKey: jina-key}]}
          retrieval: {chain: [{provider: pgvector, url: "postgresql://h/d", index: i, apiKey: pass-word,
                      embeddings: {url: "https://e.test", model: m, apiKey: emb-key}}]}
        """
    )

    keys = {"tvly-key", "brave-key", "jina-key", "pass-word", "emb-key"}
    assert loaded.secrets == {"key-of-a", "deep-one", "tok-en", *keys}
    assert "key-of-a" not in repr(loaded)


def test_a_named_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"configuration file 'other.yaml' does not exist"):
        load_settings(Path("other.yaml"), cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy: audit", "unknown key 'polcy' in toolpost.yaml; did you mean 'policy'?"),
        (
            "tools: {maxConcurent: 3}",
            "unknown key 'tools.maxConcurent' in toolpost.yaml; did you mean 'tools.maxConcurrent'?",
        ),
        (
            "sources: [{name: a, transport: cli, connection: ls, auth_typ: none}]",
            "unknown key 'sources[0].auth_typ' in toolpost.yaml; did you mean 'sources[0].auth_type'?",
        ),
        (
            "policy: [{action: allow}, {action: deny, tols: [x]}]",
            "unknown key 'policy[1].tols' in toolpost.yaml; did you mean 'policy[1].tools'?",
        ),
        (
            "overrides: {gh.rm: {hidden: true}}",
            "unknown key 'overrides.gh.rm.hidden' in toolpost.yaml; did you mean 'overrides.gh.rm.hide'?",
        ),
        (
            "network: {zzz: 1}",
            "unknown key 'network.zzz' in toolpost.yaml; 'network' takes allow_hosts, allow_private",
        ),
        (
            "tools: {maxConcurrent: 3, max_concurrent: 3}",
            "key 'tools.max_concurrent' in toolpost.yaml is given twice, also as 'tools.maxConcurrent'; keep one",
        ),
        ("sources: [{name: a, transport: cli}]", "key 'sources[0].connection' is missing in toolpost.yaml"),
        (
            "tools: {maxConcurrent: three}",
            "'tools.maxConcurrent' in toolpost.yaml must be a valid integer, got 'three'",
        ),
        ("tools: {maxConcurrent: yes}", "'tools.maxConcurrent' in toolpost.yaml must be a whole number, got True"),
        (
            "tools: {maxConcurrent: 0}",
            "'tools.maxConcurrent' in toolpost.yaml must be greater than or equal to 1, got 0",
        ),
        (
            "tools: {timeout: soon}",
            "'tools.timeout' in toolpost.yaml must be a number with a unit, such as 500ms, 30s, 10m, 12h or 7d, got",
        ),
        ("sources: {name: a}", "'sources' in toolpost.yaml must be a valid list, got a mapping"),
        ("sources:", "'sources' in toolpost.yaml must be a valid list, got nothing"),
        (
            "policy: paranoid",
            "'policy' in toolpost.yaml must be 'exploratory', 'standard', 'regulated' or 'audit', got 'paranoid'",
        ),
        (
            "policy: 5",
            "'policy' in toolpost.yaml must be exploratory, standard, regulated, audit or a list of rules, got 5",
        ),
        ("builtins: [1]", "'builtins[0]' in toolpost.yaml must be a valid string, got 1; put it in quotes"),
        (
            "sources: [{name: a, transport: http, connection: x, auth_type: bearer}]",
            "'sources[0]' in toolpost.yaml: auth_type=BEARER requires auth_config.token",
        ),
        (
            "network: {allow_hosts: [10.0.0.0/99]}",
            "'network.allow_hosts' in toolpost.yaml: '10.0.0.0/99' cannot be read",
        ),
        ("policy: 2024-01-01", "a list of rules, got datetime.date(2024, 1, 1)"),
        (f"policy: {'x' * 100}", "'audit', got text of 102 characters"),
    ],
)
def test_a_mistake_is_reported_by_its_key_and_what_would_be_right(load: Load, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_reported_at_once(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load("polcy: audit\ntools: {timeout: soon}\n")

    assert str(caught.value).startswith("toolpost.yaml has 2 errors:\n- ")
    assert "'polcy'" in str(caught.value)
    assert "'tools.timeout'" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "tools: {timeout: '${SECRET}'}",
        "sources: [{name: '${SECRET}', transport: cli, connection: ls}]",
        "sources: [{name: a, transport: cli, connection: ls, env: {A: [s3cret/value]}}]",
        "sources: [{name: a, transport: http, connection: x, auth_config: s3cret/value}]",
        "tools: {webSearch: {apiKey: 5550123}}",
        "sources: [{name: a, transport: cli, connection: ls, tool_filter: ['[${SECRET}']}]",
    ],
)
def test_a_secret_is_never_in_the_message(load: Load, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, SECRET="s3cret/value")

    assert "s3cret/value" not in str(caught.value)
    assert "5550123" not in str(caught.value)
    assert caught.value.__context__ is None
