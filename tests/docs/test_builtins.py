"""What the page of the built-in tools says of all of them is so."""

import re
from collections.abc import Sequence
from typing import Any

from tests.docs.blocks import ROOT
from toolpost import Policy, Settings, Toolbox, ToolSpec
from toolpost.schema.json_values import is_array, is_object

PAGE = (ROOT / "docs" / "built-in-tools.md").read_text(encoding="utf-8")
ON_REQUEST = ["run_command", "command_output", "command_stop"]


async def test_every_built_in_tool_that_waits_for_a_person_is_named_as_one_that_does() -> None:
    waiting = [spec.name for spec in await _specs() if Policy("standard").verdict(spec).action == "ask"]

    assert sorted(_named(r"these tools require approval: ([^.]*)\.")) == sorted(waiting)


async def test_the_table_has_every_built_in_tool_and_no_other() -> None:
    table = PAGE.partition("## List of tools")[2].partition("Two groups")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)

    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(spec.name for spec in await _specs())


async def test_every_argument_that_is_taken_in_camel_case_is_listed_with_that_spelling() -> None:
    taken = {name for spec in await _specs("all", *ON_REQUEST) for name in _names(spec.input_schema)}

    listed = _named(r"also accepted in camelCase: (.*?)\. `web_search`")

    assert sorted(listed) == sorted(name for name in taken if re.search(r"[a-z][A-Z]", name))


async def _specs(*names: str) -> Sequence[ToolSpec]:
    settings = Settings.model_validate({"data_dir": None, "builtins": list(names) or "all"})
    async with Toolbox(settings=settings) as box:
        return box.registry.specs()


def _named(sentence: str) -> list[str]:
    """The names in the one place of the page that reads like this."""
    found = re.findall(sentence, PAGE, re.DOTALL)
    assert len(found) == 1, f"the page has {len(found)} such places"
    return re.findall(r"`(\w+)`", found[0])


def _names(schema: Any) -> set[str]:
    """The names of all properties, however deep."""
    if is_array(schema):
        return {name for part in schema for name in _names(part)}
    if not is_object(schema):
        return set()
    inner = {name for part in schema.values() for name in _names(part)}
    own = schema.get("properties")
    return inner | set(own) if is_object(own) else inner
