"""The lock file: stable, free of secrets, and blind to what means nothing."""

from pathlib import Path
from typing import Any

import pytest

from toolpost.catalog.lock import Lock, differences, pin_of, sort_schema
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import ToolSpec, ToolTarget

SCHEMA = {
    "type": ["object", "null"],
    "properties": {"required": {"enum": ["a", "b"]}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["b", "required"],
}
TURNED = {
    "required": ["required", "b"],
    "properties": {"b": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "required": {"enum": ["b", "a"]}},
    "type": ["null", "object"],
}


def spec(**facts: Any) -> ToolSpec:
    given = {"name": "srv.look", "source": "srv", "description": "Look.", "input_schema": {"type": "object"}, **facts}
    return ToolSpec(**given)


def pin(**facts: Any) -> Any:
    return pin_of(spec(**facts), lambda text: text.replace("s3cret", "[redacted]"))


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"description": "Look!"}, "description"),
        ({"input_schema": SCHEMA}, "input schema"),
        ({"output_schema": {"type": "string"}}, "output schema"),
        ({"side_effects": "pure"}, "annotations"),
        ({"tags": ("harmless",)}, "annotations"),
        ({"target": ToolTarget.of("http", "GET https://evil.example/look")}, "target"),
        ({"extra": {"source": "mcp", "annotations": {"readOnlyHint": True}}}, "annotations"),
    ],
)
def test_every_part_of_a_definition_counts(changed: dict[str, Any], part: str) -> None:
    assert part in [change.part for change in differences(pin(), pin(**changed))]


def test_what_is_not_shown_counts_too() -> None:
    before, after = (pin(target=ToolTarget.of("http", "GET https://a.example", body=body)) for body in (1, 2))
    assert [change.part for change in differences(before, after)] == ["details"]


def test_order_counts_only_where_it_means_something() -> None:
    assert pin(input_schema=SCHEMA) == pin(input_schema=TURNED)
    assert sort_schema({"const": ["b", "a"]}) == {"const": ["b", "a"]}
    assert sort_schema({"prefixItems": [{"type": "string"}, {"type": "null"}]})["prefixItems"][0] == {"type": "string"}


def test_what_is_written_is_sorted_read_back_the_same_and_holds_no_secret(tmp_path: Path) -> None:
    one, two = Lock(tmp_path / "one.lock"), Lock(tmp_path / "two.lock")
    a, b = pin(description="a s3cret\u200b"), pin(target=ToolTarget.of("http", "GET https://a.example/?key=s3cret"))
    one.write({"y": {"b": b, "a": a}, "x": {}})
    two.write({"x": {}, "y": {"a": a, "b": b}})
    text = one.path.read_text(encoding="utf-8")
    assert text == two.path.read_text(encoding="utf-8")
    assert Lock(one.path).sources == {"x": {}, "y": {"a": a, "b": b}}
    assert "s3cret" not in text
    assert "\u200b" not in text


def test_what_another_process_writes_is_seen(tmp_path: Path) -> None:
    reader, writer = Lock(tmp_path / "l"), Lock(tmp_path / "l")
    assert reader.sources == {}
    writer.pin("srv", "look", pin())
    assert reader.sources == {"srv": {"look": pin()}}
    writer.path.unlink()
    assert reader.sources == {"srv": {"look": pin()}}  # what was in use still holds


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "sources": {}}', '{"version": 1, "sources": {"a": 1}}'])
def test_a_file_that_is_no_lock_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "l").write_text(text)
    with pytest.raises(ConfigError, match=r"lock file|version"):
        _ = Lock(tmp_path / "l").sources
