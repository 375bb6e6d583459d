"""Pages are parsed in a process with limits on time and memory."""

import pytest

from toolpost.builtin import html_tree
from toolpost.builtin.html_tree import parse_html
from toolpost.contracts.errors import ConfigError, ToolClientError

pytestmark = pytest.mark.programs


async def test_a_page_is_parsed_to_elements_and_text() -> None:
    root = await parse_html("<p class='a b' onclick=x>one<script>no</script><br>two")

    (paragraph,) = [element for element in root.walk() if element.name == "p"]
    assert paragraph.has_class("b")
    assert paragraph.attributes == {"class": "a b"}
    assert [getattr(child, "name", child) for child in paragraph.children] == ["one", "br", "two"]


async def test_elements_that_are_nested_too_deeply_keep_only_their_text() -> None:
    root = await parse_html("<div>" * 5000 + "deep" + "</div>" * 5000 + "<p>after")

    assert len([element for element in root.walk() if element.name == "div"]) < 150
    assert [child for element in root.walk() for child in element.children if isinstance(child, str)] == [
        "deep",
        "after",
    ]


UNCLOSED = "<div>" + "".join(f"<b id={number}>" for number in range(20_000)) + "</div>" + "<p>x" * 20_000


@pytest.mark.slow
@pytest.mark.parametrize("page", [UNCLOSED, "<div>" * 1_000_000], ids=["formatting", "nesting"])
async def test_a_page_that_takes_too_much_is_refused(page: str) -> None:
    with pytest.raises(ToolClientError) as refused:
        await parse_html(page)

    assert refused.value.error_code == "page_too_complex"
    assert refused.value.message.endswith("http_get returns its source")


async def test_a_missing_parser_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_tree, "find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"run: pip install 'toolpost\[http\]'"):
        await parse_html("<p>a")
