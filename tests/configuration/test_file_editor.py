"""Sources are added to the text of a file; all else in it stays, letter by letter."""

from pathlib import Path

import pytest
import yaml

from toolpost.configuration.file_editor import (
    InsertionError,
    add_sources,
    config_path,
    insert_sources,
    load_leniently,
    mark_trusted,
    snippet,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import TransportType

NEW = ExternalToolConfig(
    name="new", transport=TransportType.MCP, connection="npx -y 'a b' # c", env={"KEY": "${KEY}", "N": "1"}
)
ITEM = """\
- name: new
  transport: mcp
  connection: 'npx -y ''a b'' # c'
  env:
    KEY: ${KEY}
    N: '1'
"""
BELOW = "".join(f"  {line}\n" for line in ITEM.splitlines())
FLOW = '{"name": "new", "transport": "mcp", "connection": "npx -y \'a b\' # c", "env": {"KEY": "${KEY}", "N": "1"}}'
OLD = "{name: old, transport: python, connection: ./tools.py}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"sources:\n{BELOW}"),
        ("# nothing yet", f"# nothing yet\nsources:\n{BELOW}"),
        ("---\n", f"---\nsources:\n{BELOW}"),
        ("policy: audit  # strict\n", f"policy: audit  # strict\nsources:\n{BELOW}"),
        ("policy: audit", f"policy: audit\nsources:\n{BELOW}"),
        ("sources: []  # none yet\npolicy: audit\n", f"sources:  # none yet\n{BELOW}policy: audit\n"),
        ("sources:  # to come\npolicy: audit\n", f"sources:  # to come\n{BELOW}policy: audit\n"),
        ("sources: null", f"sources:\n{BELOW}"),
        (f"sources:\n  - {OLD}\n", f"sources:\n  - {OLD}\n{BELOW}"),
        (f"sources:\n  - {OLD}", f"sources:\n  - {OLD}\n{BELOW}"),
        (
            f"sources:\n- {OLD}\n\n# who decides\npolicy: audit\n",
            f"sources:\n- {OLD}\n{ITEM}\n# who decides\npolicy: audit\n",
        ),
        (
            f"sources:\n  - {OLD}\n  # - {{name: off}}\n\npolicy: audit\n",
            f"sources:\n  - {OLD}\n  # - {{name: off}}\n{BELOW}\npolicy: audit\n",
        ),
        (f"sources:\n  - {OLD}\n...\n", f"sources:\n  - {OLD}\n{BELOW}...\n"),
        (f"one: &one {OLD}\nsources:\n  - *one\n# end\n", f"one: &one {OLD}\nsources:\n  - *one\n{BELOW}# end\n"),
        (f"sources: [{OLD}]  # few\n", f"sources: [{OLD}, {FLOW}]  # few\n"),
        (f"sources: [\n  {OLD}, # [one],\n]\n", f"sources: [\n  {OLD}, # [one],\n{FLOW}]\n"),
    ],
)
def test_only_the_new_source_is_added(before: str, after: str) -> None:
    assert insert_sources(before, [NEW]) == after
    assert yaml.safe_load(after)["sources"][-1]["env"] == {"KEY": "${KEY}", "N": "1"}


def test_a_file_of_another_system_keeps_its_line_ends() -> None:
    before = f"sources:\r\n  - {OLD}\r\n\r\npolicy: audit\r\n"

    after = insert_sources(before, [NEW])

    assert after == f"sources:\n  - {OLD}\n{BELOW}\npolicy: audit\n".replace("\n", "\r\n")


@pytest.mark.parametrize(
    "text",
    [
        "{policy: audit}\n",
        "policy: audit\n...\n",
        "sources: {a: 1}\n",
        "sources: !!seq\n  - 1\n",
        "policy: [\n",
        "- 1\n",
    ],
)
def test_where_nothing_can_be_added_safely_the_text_to_paste_is_given(text: str) -> None:
    with pytest.raises(InsertionError, match="nothing can be added safely") as caught:
        insert_sources(text, [NEW])

    assert caught.value.snippet == snippet([NEW]) == f"sources:\n{BELOW}"


def test_what_is_the_default_is_not_written() -> None:
    far = ExternalToolConfig(
        name="far",
        transport=TransportType.MCP,
        connection="https://far.example/mcp",
        options={"transport": "sse"},
    )

    assert yaml.safe_load(snippet([far])) == {
        "sources": [
            {
                "name": "far",
                "transport": "mcp",
                "connection": "https://far.example/mcp",
                "options": {"transport": "sse"},
            }
        ]
    }


def test_a_file_is_made_or_replaced_with_its_mode_and_through_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "toolpost.yaml"
    real.write_text("policy: audit\n")
    real.chmod(0o640)
    link.symlink_to(real)

    settings = add_sources(link, [NEW], environ={"KEY": "value"})

    assert settings.sources[0].env["KEY"] == "value"
    assert link.is_symlink()
    assert real.read_text().startswith("policy: audit\nsources:\n")
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["real.yaml", "toolpost.yaml"]


def test_variables_that_are_not_set_yet_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "toolpost.yaml"
    path.write_text("sources:\n  - {name: old, transport: cli, connection: x, env: {A: '${NOT_SET}'}}\n")

    add_sources(path, [NEW], environ={})

    settings = load_leniently(path, {})
    assert settings is not None
    assert [source.name for source in settings.sources] == ["old", "new"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sources: [{name: new, transport: cli, connection: x}]\n", "both named 'new'"),
        ("polcy: audit\n", "unknown key 'polcy' in toolpost.yaml"),
        ("tools: {timeout: '${NOT_SET}'}\n", "environment variable is not set: NOT_SET"),
    ],
)
def test_a_file_that_would_not_hold_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toolpost.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        add_sources(path, [NEW], environ={"KEY": "value"})

    assert told in str(caught.value)
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"policy: \xff\n")

    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        add_sources(tmp_path / "gone" / "toolpost.yaml", [NEW], environ={})
    with pytest.raises(ConfigError, match="cannot be read"):
        add_sources(tmp_path, [NEW], environ={})
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        add_sources(tmp_path / "latin.yaml", [NEW], environ={})


def test_the_file_of_the_working_folder_is_meant_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert config_path(None) == tmp_path / "toolpost.yaml"
    assert config_path(Path("sub/my.yaml")) == tmp_path / "sub" / "my.yaml"
    assert load_leniently(config_path(None), {}) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"sources: [{OLD}]\n", f"sources: [{OLD[:-1]}, trust: true}}]\n"),
        (f'{{"sources": [{FLOW}]}}', f'{{"sources": [{FLOW[:-1]}, "trust": true}}]}}'),
        (
            "sources:\n- name: old  # ours\n  transport: python\n  connection: ./t.py\npolicy: audit\n",
            "sources:\n- name: old  # ours\n  trust: true\n  transport: python\n  connection: ./t.py\npolicy: audit\n",
        ),
    ],
)
def test_trust_is_written_for_one_source_and_all_else_stays(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "toolpost.yaml"
    file.write_text(before)
    mark_trusted(file, "new" if '"new"' in before else "old", environ={})
    assert file.read_text() == after


def test_trust_that_cannot_be_written_safely_is_left_to_a_person(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.yaml"
    file.write_text(
        "sources:\n- env: {A: b}  # {\n  name: old\n  transport: python\n  connection: ./t.py\n  trust: false\n"
    )
    with pytest.raises(ConfigError, match="add the line below its name"):
        mark_trusted(file, "old", environ={})
