"""`toolpost tools disconnect`: the entry goes, all the rest of the file stays."""

from pathlib import Path

import pytest

from tests.cli.program import Run

BLOCK = """\
# Tools of the house
policy: standard   # for now

sources:
  # who is in
  - name: local
    transport: python
    connection: ./tools.py   # ours
    overrides:
      add: {timeout_s: 3}

  # the weather
  - {name: weather, transport: mcp, connection: "uvx ${WEATHER}"}
# the end
network: {allow_private: false}
"""
WITHOUT_WEATHER = BLOCK.replace('  - {name: weather, transport: mcp, connection: "uvx ${WEATHER}"}\n', "")
WITHOUT_LOCAL = BLOCK.replace(BLOCK[BLOCK.index("  - name: local") : BLOCK.index("\n  # the weather")], "")
A, B = (f'{{"name": "{name}", "transport": "python", "connection": "x"}}' for name in ("a", "local"))
FLOW = f'{{"sources": [{A}, {B}]}}\n'
LAST = "sources:\n  - name: local\n    transport: python\n    connection: ./tools.py\npolicy: audit\n"
SEED = "tools:\n  mcpServers:\n    - {name: local, command: some}\n    - {name: other, command: some}\n"


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (BLOCK, "weather", WITHOUT_WEATHER),
        (BLOCK, "local", WITHOUT_LOCAL),
        (FLOW, "local", f'{{"sources": [{A}]}}\n'),
        (FLOW, "a", f'{{"sources": [{B}]}}\n'),
        (LAST, "local", "sources: []\npolicy: audit\n"),
        (LAST.replace("\n", "\r\n"), "local", "sources: []\r\npolicy: audit\r\n"),
        ("sources: [{name: local, transport: python, connection: a}]\n", "local", "sources: []\n"),
        (SEED, "local", "tools:\n  mcpServers:\n    - {name: other, command: some}\n"),
    ],
    ids=["last of two", "first of two", "JSON", "first of JSON", "only one", "CRLF", "only one in brackets", "seed"],
)
def test_the_entry_goes_and_every_other_byte_stays(
    toolpost: Run, home: Path, before: str, name: str, after: str
) -> None:
    (home / "toolpost.yaml").write_bytes(before.encode())

    done = toolpost("tools", "disconnect", name)

    assert done.code == 0, done.err
    assert (home / "toolpost.yaml").read_bytes().decode() == after
    assert name in done.out
    assert f"'{name}' from toolpost.yaml" in done.err


def test_a_source_that_is_not_there_is_reported_with_the_nearest(toolpost: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_bytes()

    done = toolpost("tools", "disconnect", "locla", "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "source_not_found")
    assert "did you mean 'local'?" in done.json["error"]["message"]
    assert (home / "toolpost.yaml").read_bytes() == before


def test_what_cannot_be_cut_out_safely_is_left_to_a_person(toolpost: Run, home: Path) -> None:
    shared = "sources:\n  - &one {name: local, transport: python, connection: ./tools.py}\n  - {<<: *one, name: two}\n"
    (home / "toolpost.yaml").write_text(shared)

    done = toolpost("tools", "disconnect", "local")

    assert done.code == 1
    assert "delete it in an editor" in done.err
    assert (home / "toolpost.yaml").read_text() == shared


def test_a_disconnected_source_can_be_connected_again(toolpost: Run, home: Path) -> None:
    toolpost("tools", "disconnect", "local")
    done = toolpost("tools", "connect", "./tools.py", "--name", "local", "--yes")

    assert done.code == 0
    assert "local.add" in done.out
