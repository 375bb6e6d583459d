"""Tools that come from no source: listed without a Toolbox as an open one has them."""

from pathlib import Path

import pytest

from toolpost import ConfigError, Toolbox
from toolpost.configuration.loading import load_settings
from toolpost.toolbox.local_tools import list_local_tools

CONFIG = """
data_dir: null
builtins: [file_tools, get_env, sleep, web_search]
overrides: {sleep: {hide: true}, get_env: {name: read_env}, nobody: {hide: true}}
collections: {mine: [read_env, read_file], lost: [gone_tool]}
tools: {webSearch: {provider: brave}}
"""


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
