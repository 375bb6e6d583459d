"""Random schemas, and random values that may or may not fit them."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
Made = tuple[dict[str, Any], st.SearchStrategy[Any]]


def json_values() -> st.SearchStrategy[Any]:
    """Small JSON values, of names and numbers that the schemas know."""
    numbers = st.integers(-3, 9) | st.sampled_from([0.5, 2.0, -1.5])
    return st.recursive(
        st.none()
        | st.booleans()
        | numbers
        | st.text("a1", max_size=4)
        | st.sampled_from(["5", "true", "[1]", '{"a": 1}']),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    )


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of every common keyword."""
    return _pairs().map(lambda made: made[0])


def schemas_and_values() -> st.SearchStrategy[tuple[dict[str, Any], Any]]:
    """A schema with a value that fits it."""
    return _pairs().flatmap(lambda made: st.tuples(st.just(made[0]), made[1]))


def _pairs() -> st.SearchStrategy[Made]:
    leaves: list[Made] = [
        ({"type": "integer", "minimum": 1}, st.integers(1, 9)),
        ({"type": "number", "exclusiveMaximum": 3}, st.sampled_from([0, 1.5, -2])),
        ({"type": "string", "maxLength": 2}, st.text("a1", max_size=2)),
        ({"type": "string", "pattern": "^a"}, st.sampled_from(["a", "a1"])),
        ({"type": "boolean"}, st.booleans()),
        ({"type": ["integer", "null"]}, st.none() | st.integers(0, 5)),
        ({"enum": ["a", 1, None]}, st.sampled_from(["a", 1, None])),
        ({"const": "a"}, st.just("a")),
        ({}, json_values()),
    ]
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: _arrays(inner) | _objects(inner) | _choices(inner) | _definitions(inner),
        max_leaves=4,
    )


def _arrays(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    def make(made: Made) -> Made:
        schema, values = made
        return {"type": "array", "items": schema, "maxItems": 2}, st.lists(values, max_size=2)

    return inner.map(make)


def _objects(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    def make(fields: dict[str, Made]) -> Made:
        schema = {
            "type": "object",
            "properties": {name: made[0] for name, made in fields.items()},
            "required": sorted(fields)[:1],
            "additionalProperties": False,
        }
        return schema, st.fixed_dictionaries({name: made[1] for name, made in fields.items()})

    return st.dictionaries(NAMES, inner, max_size=3).map(make)


def _choices(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    def make(options: list[Made]) -> Made:
        return {"anyOf": [made[0] for made in options]}, st.one_of(*(made[1] for made in options))

    return st.lists(inner, min_size=1, max_size=3).map(make)


def _definitions(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    """A schema behind a reference, in a document of its own so that it can stand anywhere."""

    def make(made: Made) -> Made:
        schema, values = made
        return {"$id": "urn:part:" + str(abs(hash(str(schema)))), "$ref": "#/$defs/it", "$defs": {"it": schema}}, values

    return inner.map(make)
