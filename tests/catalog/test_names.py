"""Canonical names, and the names that models accept."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.catalog.names import (
    MODEL_NAME_LIMIT,
    NamingPolicy,
    ToolNameMap,
    canonical_name,
    check_canonical,
    model_name,
)
from toolpost.contracts.errors import ToolCollisionError

SOURCES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}", fullmatch=True)


@pytest.mark.parametrize(
    ("source", "tool", "name"),
    [
        ("github", "create_issue", "github.create_issue"),
        ("n8n", "Send e-mail!", "n8n.Send_e-mail_"),
        ("api", "GET /pets/{id}", "api.GET__pets__id_"),
        ("api", "v1.pets.list", "api.v1_pets_list"),
        ("", "read_file", "read_file"),
        ("", "größe", "gr__e_d353a267"),
    ],
)
def test_a_tool_is_named_after_its_source_in_characters_that_all_accept(source: str, tool: str, name: str) -> None:
    assert canonical_name(source, tool) == name


@settings(deadline=None)
@given(SOURCES, st.text(min_size=1, max_size=300))
def test_every_name_of_a_source_becomes_one_that_models_accept(source: str, tool: str) -> None:
    name = canonical_name(source, tool)

    check_canonical(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", model_name(name))


def test_two_names_in_another_script_stay_apart() -> None:
    names = {canonical_name("tasks", name) for name in ("创建任务", "删除任务", "查询任务")}

    assert len(names) == 3


def test_two_long_names_with_the_same_beginning_stay_apart() -> None:
    names = {canonical_name("api", "x" * 80 + end) for end in ("a", "b")}

    assert len(names) == 2
    assert {len(model_name(name)) for name in names} == {MODEL_NAME_LIMIT}


def test_a_long_name_is_cut_the_same_way_every_time() -> None:
    assert canonical_name("api", "y" * 100) == canonical_name("api", "y" * 100)


def test_a_name_that_just_fits_is_not_cut() -> None:
    longest = "z" * (MODEL_NAME_LIMIT - len("api__"))

    assert canonical_name("api", longest) == f"api.{longest}"


def test_a_source_whose_name_leaves_no_room_is_refused_when_its_tool_is_registered() -> None:
    with pytest.raises(ToolCollisionError, match="longer than the 64 characters that models accept"):
        check_canonical(canonical_name("s" * 60, "some_tool"))


@pytest.mark.parametrize("name", ["add", "gh.issue", "a-b_c.D-1", "0", "_"])
def test_a_plain_or_dotted_name_is_accepted(name: str) -> None:
    check_canonical(name)


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a.b.c", "a b", "a/b", "größe", "a\n", "a.b\n", "<lambda>", "a..b", "x" * 65]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(ToolCollisionError) as raised:
        check_canonical(name)

    assert raised.value.error_code == "name_invalid"


@pytest.mark.parametrize(
    ("policy", "shown"),
    [("double_underscore", "gh__create_issue"), ("dotted", "gh.create_issue"), ("sanitized", "gh_create_issue")],
)
def test_a_policy_decides_what_a_model_sees_and_the_map_leads_back(policy: NamingPolicy, shown: str) -> None:
    names = ToolNameMap(policy)

    assert names.add("gh.create_issue") == shown
    assert names.to_model("gh.create_issue") == shown
    assert names.to_canonical(shown) == "gh.create_issue"


@pytest.mark.parametrize(
    ("policy", "first", "second"),
    [
        ("double_underscore", "gh.issue", "gh__issue"),
        ("double_underscore", "gh__issue", "gh.issue"),
        ("sanitized", "a.b_c", "a_b.c"),
        ("dotted", "gh.issue", "gh.issue"),
    ],
)
def test_two_tools_that_would_look_the_same_to_a_model_are_refused(
    policy: NamingPolicy, first: str, second: str
) -> None:
    names = ToolNameMap(policy)
    names.add(first)

    with pytest.raises(ToolCollisionError, match=r"would both be .* to a model; rename one of them"):
        names.add(second)


def test_a_name_is_free_again_once_its_tool_is_gone() -> None:
    names = ToolNameMap()
    names.add("gh.issue")

    names.remove("gh.issue")
    names.remove("never.there")

    assert names.to_canonical("gh__issue") is None
    assert names.add("gh__issue") == "gh__issue"


@settings(deadline=None)
@given(st.lists(st.tuples(SOURCES, st.text(min_size=1)), max_size=20))
def test_every_model_name_leads_back_to_its_one_tool(tools: list[tuple[str, str]]) -> None:
    names = ToolNameMap()
    added: dict[str, str] = {}
    for source, tool in tools:
        canonical = canonical_name(source, tool)
        if names.to_canonical(model_name(canonical)) is None:
            added[names.add(canonical)] = canonical

    assert {alias: names.to_canonical(alias) for alias in added} == added
