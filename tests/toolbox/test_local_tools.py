"""Tools that come from no source: listed without a Toolbox as an open one has them."""

from pathlib import Path

import pytest

from toolpost import ConfigError, Toolbox
from toolpost.configuration.loading import load_settings
from toolpost.toolbox.local_tools import LocalCatalog, list_default_tools, list_local_tools

CONFIG = """
data_dir: null
builtins: [file_tools, get_env, sleep, web_search]
overrides: {sleep: {hide: true}, get_env: {name: read_env}, nobody: {hide: true}}
collections: {mine: [read_env, read_file], lost: [gone_tool]}
tools: {webSearch: {provider: brave}}
"""
PLUG_IN = """
from toolpost import tool

@tool(side_effects="pure")
def undescribed() -> int:
    return 1
"""


def facts_of(catalog: LocalCatalog) -> list[object]:
    specs = catalog.registry.specs
    names = [spec.name for spec in specs("file_tools")]
    found = [[spec.to_dict() for spec in specs()], names]
    return [*found, [*catalog.problems], catalog.data_dir, [*catalog.source_names]]


async def test_a_list_without_a_toolbox_has_what_an_open_one_has(tmp_path: Path) -> None:
    path = tmp_path / "toolpost.yaml"
    path.write_text(CONFIG)

    listed = list_local_tools(load_settings(path))

    async with Toolbox.open(path) as box:
        assert [spec.to_dict() for spec in listed.registry.specs()] == [spec.to_dict() for spec in box.registry.specs()]
        assert {spec.name for spec in listed.registry.specs("mine")} == {"read_file", "read_env"}
        assert listed.problems == list(box.problems) != []


def test_wrong_settings_of_a_built_in_tool_are_refused_by_a_list_too(tmp_path: Path) -> None:
    path = tmp_path / "toolpost.yaml"
    path.write_text("builtins: [read_fil]\n")

    with pytest.raises(ConfigError, match="did you mean 'read_file'"):
        list_local_tools(load_settings(path))


def test_a_folder_without_a_configuration_lists_what_the_defaults_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    listed = list_default_tools()

    assert facts_of(listed) == facts_of(list_local_tools(load_settings(None)))
    assert listed.registry.has("read_file")
    assert not listed.registry.has("run_command")


def test_tools_of_plug_ins_are_listed_and_linted_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plug_of_defaults.py").write_text(PLUG_IN)
    folder = tmp_path / "plug_of_defaults-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug_of_defaults\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[toolpost.tools]\na = plug_of_defaults:undescribed\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    listed = list_default_tools()

    assert listed.registry.has("undescribed")
    assert ["no description" in problem for problem in listed.problems] == [True]
