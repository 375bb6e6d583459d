"""Where references lead."""

from typing import Any

import pytest

from toolpost.schema.subschemas import SchemaDocument, subschemas


def test_subschemas_are_reported_by_where_they_apply() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": True},
        "allOf": [{"minProperties": 1}],
        "$defs": {"c": {}},
        "dependencies": {"a": ["b"], "b": {"required": ["a"]}},
        "enum": [{"not": "a schema"}],
        "patternProperties": ["odd"],
    }

    found = [(inner.place, inner.keyword, inner.key) for inner in subschemas(schema)]

    assert found == [
        ("below", "properties", "a"),
        ("here", "allOf", 0),
        ("stored", "$defs", "c"),
        ("here", "dependencies", "b"),
    ]


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", "root"),
        ("#/$defs/a", "a"),
        ("#/$defs/list/anyOf/1", "second"),
        ("#/$defs/list/anyOf/9", None),
        ("#/$defs/list/anyOf/99999999999999999999", None),
        ("#/$defs/a/title/deeper", None),
        ("#anchor", "anchored"),
        ("#old", "old"),
        ("https://x.test/root", "root"),
        ("inner", "inner"),
        ("inner#/$defs/a", "a of inner"),
        ("https://elsewhere.test/", None),
    ],
)
def test_a_reference_is_found_by_pointer_anchor_and_id(reference: str, target: str | None) -> None:
    root: dict[str, Any] = {
        "$id": "https://x.test/root",
        "title": "root",
        "$defs": {
            "a": {"title": "a"},
            "list": {"anyOf": [{"title": "first"}, {"title": "second"}]},
            "b": {"$anchor": "anchor", "title": "anchored"},
            "c": {"$id": "#old", "title": "old"},
            "d": {"$id": "inner", "title": "inner", "$defs": {"a": {"title": "a of inner"}}},
        },
    }

    found = SchemaDocument(root).target(reference, root)

    assert (found["title"] if isinstance(found, dict) else found) == target


def test_a_reference_is_relative_to_the_nearest_id_above_it() -> None:
    source = {"$ref": "#/$defs/a"}
    inner = {"$id": "inner", "$defs": {"a": {"title": "inner a"}}, "items": source}
    root = {"$defs": {"a": {"title": "outer a"}, "inner": inner}}

    assert SchemaDocument(root).target("#/$defs/a", source) == {"title": "inner a"}
    assert SchemaDocument(root).target("#/$defs/a", root) == {"title": "outer a"}


def test_the_word_id_is_an_address_only_in_draft_4() -> None:
    source = {"$ref": "#/definitions/a"}
    root = {"definitions": {"a": {"title": "a"}}, "items": {"id": "x", "items": source}}

    assert SchemaDocument(root).target("#/definitions/a", source) == {"title": "a"}
    assert (
        SchemaDocument({**root, "$schema": "http://json-schema.org/draft-04/schema#"}).target("x", root)
        == root["items"]
    )
