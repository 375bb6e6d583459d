"""Names in settings that match nothing are told at opening, with the nearest that there is."""

from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from toolpost import Toolbox, tool
from toolpost.contracts.config import ExternalToolConfig

TOOLS = """
from toolpost import tool

@tool(side_effects="pure", tags=["stock"])
def list_items() -> int:
    '''Say something.'''
    return 1

@tool(side_effects="write", destructive=True)
def delete_item() -> int:
    '''Say something.'''
    return 1
"""


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "shop.py").write_text(TOOLS)
    return {"name": "shop", "transport": "python", "connection": str(tmp_path / "shop.py")}


async def problems(*sources: dict[str, Any], **settings: Any) -> list[str]:
    async with Toolbox(
        settings=PatientSettings.model_validate({"data_dir": None, "builtins": "all", "sources": sources, **settings})
    ) as box:
        return list(box.problems)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tools": ["delet_file"]}, ["no tool is called 'delet_file'; did you mean 'delete_file'?"]),
        ({"tools": ["delete_item"]}, ["no tool is called 'delete_item'; did you mean 'shop.delete_item'?"]),
        ({"tools": ["shop.delet_*"]}, ["no tool matches 'shop.delet_*' yet; did you mean 'shop.delete_item'?"]),
        ({"tools": ["shpo.x"]}, ["no tool is called 'shpo.x'; there is no source 'shpo' either; did you mean 'shop'?"]),
        ({"sources": ["shpo"]}, ["no source is called 'shpo'; did you mean 'shop'?"]),
        ({"tags": ["stok"]}, ["no tool has the tag 'stok'; did you mean 'stock'?"]),
        ({"tools": ["read_file"], "sources": ["shop"]}, ["no tool of 'shop' is called 'read_file'"]),
        ({"tools": ["*_item*", "read_file"], "tags": ["stock"]}, []),
        ({"sources": ["shop"], "side_effects": ["external"]}, []),
    ],
)
async def test_a_rule_says_which_of_its_names_no_one_has(
    shop: dict[str, Any], rule: dict[str, Any], said: list[str]
) -> None:
    rules = [{"action": "allow", "tools": ["read_file"]}, {"action": "deny", **rule}]

    assert await problems(shop, policy=rules) == [f"policy rule 2: {text}" for text in said]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([("allow", "*"), ("deny", "shop.delete_*")], ["policy rule 2: rule 1 decides first with allow"]),
        ([("ask", "shop.*"), ("allow", "shop.list_items")], ["policy rule 2: rule 1 decides first with ask"]),
        ([("allow", "shop.list_items"), ("deny", "shop.*")], []),
        ([("allow", "shop.*"), ("deny", "*")], []),
        ([("deny", "shop.*"), ("deny", "shop.delete_item")], []),
    ],
    ids=["deny", "allow", "exception", "all the rest", "same"],
)
async def test_a_rule_that_others_leave_nothing_to_is_reported(
    shop: dict[str, Any], rules: list[tuple[str, str]], said: list[str]
) -> None:
    policy = [{"action": action, "tools": [pattern]} for action, pattern in rules]

    assert await problems(shop, policy=policy, builtins="none") == [f"{text}; put this one before it" for text in said]


async def test_a_rule_is_reported_the_name_that_an_override_gave(shop: dict[str, Any]) -> None:
    renamed = {**shop, "overrides": {"delete_item": {"name": "drop"}}}
    policy = [{"action": "deny", "tools": ["shop.delete_item"]}]

    assert await problems(renamed, policy=policy) == [
        "policy rule 1: no tool is called 'shop.delete_item'; an override calls it 'shop.drop'"
    ]


async def test_a_built_in_tool_that_is_off_is_not_misspelt(shop: dict[str, Any]) -> None:
    rules = [{"action": "deny", "tools": ["run_command", "write_file", "reply"]}]
    hidden = {"read_file": {"hide": True}}

    assert await problems(shop, policy=rules, overrides=hidden, builtins=["read_file"]) == []


@pytest.mark.parametrize(
    "unseen",
    [
        {"connection": "no.such.module"},
        {"connection": "no.such.module", "enabled": False},
        {"transport": "mcp", "connection": "http://127.0.0.1:9/mcp", "auth_type": "oauth2_user"},
    ],
    ids=["failed", "disabled", "for people who sign in"],
)
async def test_of_a_source_that_cannot_be_seen_nothing_is_said(unseen: dict[str, Any]) -> None:
    source = {"name": "far", "transport": "python", "overrides": {"drop": {"hide": True}}, **unseen}
    rules = [
        {"action": "deny", "tools": ["far.drop", "far.*", "f*p"], "tags": ["any"]},
        {"action": "ask", "tools": ["far.drop"], "sources": ["far"]},
        {"action": "ask", "tools": ["fra.drop"]},
    ]

    told = await problems(source, policy=rules, collections={"mine": ["far.drop", "tag:any"]})

    assert [text for text in told if not text.startswith("source 'far' is skipped")] == [
        "policy rule 3: no tool is called 'fra.drop'; there is no source 'fra' either; did you mean 'far'?"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"overrides": {"list_itms": {"hide": True}}},
            "overrides: none of its tools is called 'list_itms'; did you mean",
        ),
        ({"tool_filter": ["list_.*", "drop_.*"]}, "tool_filter: none of its tools matches 'drop_.*'"),
        (
            {"tool_filter": ["nothing_.*"]},
            "tool_filter: none of its tools matches 'nothing_.*', and so the source has no tools",
        ),
        (
            {"tool_exclude": ["delet_item", "list_.*"]},
            "tool_exclude: none of its tools matches 'delet_item'; did you mean",
        ),
        ({"tool_exclude": [".*"]}, "has no tools; tool_exclude may exclude all of them"),
    ],
)
async def test_a_source_says_which_of_its_names_no_one_has(shop: dict[str, Any], given: Any, said: str) -> None:
    (told,) = await problems({**shop, **given})

    assert told.startswith("source 'shop'")
    assert said in told


async def test_what_a_source_was_told_to_leave_out_needs_no_tool(shop: dict[str, Any]) -> None:
    source = {**shop, "tool_exclude": ["delete_.*"], "overrides": {"delete_item": {"hide": True}}}

    assert await problems(source, policy=[{"action": "deny", "tools": ["shop.delete_item"]}]) == []


async def test_a_filtered_tool_is_reported_only_if_the_filter_nearly_matches(shop: dict[str, Any]) -> None:
    source = {**shop, "tool_filter": ["delete_item"]}
    rules = [{"action": "deny", "tools": ["shop.delet_item", "shop.stock_report"]}]

    assert await problems(source, policy=rules) == [
        "policy rule 1: no tool is called 'shop.delet_item'; did you mean 'shop.delete_item'?"
    ]


async def test_a_file_without_tools_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")

    (told,) = await problems({"name": "bare", "transport": "python", "connection": str(tmp_path / "empty.py")})

    assert told.startswith("source 'bare' has no tools; mark functions of ")


async def test_renamed_and_hidden_tools_go_by_the_names_they_had(shop: dict[str, Any]) -> None:
    overrides = {"list_items": {"name": "list_all"}, "delete_item": {"hide": True}}
    rules = [{"action": "deny", "tools": ["shop.list_all", "shop.delete_item"]}]
    above = {"http_get": {"name": "fetch"}, "http_gett": {"timeout_s": 3}}

    assert await problems({**shop, "overrides": overrides}, policy=rules, overrides=above) == [
        "overrides: no tool is called 'http_gett'; did you mean 'http_get'?"
    ]


async def test_an_override_goes_by_a_name_and_not_by_a_pattern(shop: dict[str, Any]) -> None:
    (told,) = await problems(shop, overrides={"shop.*": {"hide": True}})

    assert told.startswith("overrides: no tool is called 'shop.*'")


async def test_all_tools_of_a_source_may_be_none_today(shop: dict[str, Any]) -> None:
    source = {**shop, "tool_exclude": [".*"]}

    told = await problems(source, policy=[{"action": "deny", "tools": ["shop.*"]}])

    assert [text for text in told if "policy" in text] == []


async def test_a_collection_says_which_of_its_members_there_are_not(shop: dict[str, Any]) -> None:
    told = await problems(shop, collections={"bad": ["nosuch", "tag:stok", "shop.list_*", "tag:stock"]})

    assert told == [
        "collection 'bad': no tool is called 'nosuch'",
        "collection 'bad': no tool has the tag 'stok'; did you mean 'stock'?",
    ]


async def test_providers_say_what_they_lack(shop: dict[str, Any]) -> None:
    chain = [{"provider": "mcp", "tool": "nosuch.tool"}, {"provider": "mcp", "tool": "shop.list_items"}]

    told = await problems(shop, tools={"webSearch": {"provider": "brave"}, "webFetch": {"chain": chain}})
    keyed = await problems(shop, tools={"webSearch": {"provider": "brave", "apiKey": "key-of-mine"}})

    assert [text.partition(",")[0] for text in told] == [
        "tools.web_search: provider 'brave' has no key",
        "tools.web_fetch: provider 'mcp' calls 'nosuch.tool'",
    ]
    assert keyed == []


async def test_a_tool_of_ones_own_without_a_docstring_is_reported(shop: dict[str, Any]) -> None:
    @tool(side_effects="pure")
    async def silent() -> str:
        return "..."

    settings = PatientSettings.model_validate({"data_dir": None, "sources": [shop]})
    async with Toolbox(tools=[silent], settings=settings) as box:
        told = list(box.problems)

    assert told == [
        "tool 'silent' has no description, so a model cannot know its purpose; give its function a docstring"
    ]


async def test_a_tool_that_comes_later_ends_the_complaint(shop: dict[str, Any]) -> None:
    @tool(side_effects="pure")
    async def later() -> str:
        """Say something."""
        return "here"

    rules = [{"action": "deny", "tools": ["later"]}]
    settings = PatientSettings.model_validate({"data_dir": None, "sources": [shop], "policy": rules})
    async with Toolbox(settings=settings) as box:
        before = list(box.problems)
        box.registry.register(later)
        after = list(box.problems)

    assert (before, after) == (["policy rule 1: no tool is called 'later'"], [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auth_config": {"token": "t"}}, "not sent without an auth_type; write auth_type: bearer beside it"),
        ({"auth_config": {"username": "u", "password": "p"}}, "write auth_type: basic beside it"),
        (
            {"auth_type": "bearer", "auth_config": {"tokn": "t"}},
            "auth_type=BEARER requires auth_config.token: auth_config has 'tokn'; did you mean 'token'?",
        ),
        (
            {"auth_type": "api_key", "auth_config": {"api_key": "k", "heder": "X"}},
            "auth_config has 'heder'; did you mean 'header'?",
        ),
    ],
)
def test_what_would_not_be_sent_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="auth_config") as refused:
        ExternalToolConfig.model_validate(
            {"name": "a", "transport": "http", "connection": "https://a.example", **given}
        )

    assert said in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"transport": "utcp", "auth_config": {"token": "a variable of the manual"}},
        {"transport": "http", "auth_config": {"schemes": {"key": "k"}}},
        {"transport": "http", "auth_type": "none", "auth_config": {"token": "switched off"}},
    ],
)
def test_what_has_another_use_is_left_alone(given: dict[str, Any]) -> None:
    made = ExternalToolConfig.model_validate({"name": "a", "connection": "https://a.example", **given})

    assert made.auth_config == given["auth_config"]


async def test_a_view_says_which_of_its_names_there_are_not(shop: dict[str, Any]) -> None:
    wrong = {"sources": ["shpo"], "collection": "file_tool", "tags": ["stok"], "tools": ["shop.list_item", "tag:stock"]}
    told = await problems(shop, views={"bad": wrong, "good": {"sources": ["shop"], "collection": "file_tools"}})

    assert told == [
        "view 'bad': no source is called 'shpo'; did you mean 'shop'?",
        "view 'bad': no collection is called 'file_tool'; did you mean 'file_tools'?",
        "view 'bad': no tool has the tag 'stok'; did you mean 'stock'?",
        "view 'bad': no tool is called 'shop.list_item'; did you mean 'shop.list_items'?",
    ]
