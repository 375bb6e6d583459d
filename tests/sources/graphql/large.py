"""A schema of thousands of types in which everything leads to everything, as introspection tells it."""

import random
from typing import Any

TYPES, INPUTS, QUERIES, MUTATIONS = 1500, 400, 40, 250
_SCALARS = ("ID", "String", "Int", "Boolean", "Float", "DateTime")


def large() -> dict[str, Any]:
    chance = random.Random(7)
    types = [
        *(_typed("OBJECT", f"T{n}", interfaces=[_node()], fields=_fields(chance)) for n in range(TYPES)),
        *(_typed("INPUT_OBJECT", f"I{n}", inputFields=_inputs(chance)) for n in range(INPUTS)),
        *(_typed("SCALAR", name) for name in _SCALARS),
        _typed("INTERFACE", "Node", interfaces=[], fields=[_id()]),
        _typed("OBJECT", "Query", interfaces=[], fields=[*_roots(chance, "find", QUERIES), _field("node", _node())]),
        _typed("OBJECT", "Mutation", interfaces=[], fields=_roots(chance, "change", MUTATIONS)),
    ]
    roots = {"queryType": {"name": "Query"}, "mutationType": {"name": "Mutation"}}
    return {"__schema": {**roots, "types": types, "directives": []}}


def _fields(chance: random.Random) -> list[dict[str, Any]]:
    return [
        _id(),
        *(_field(f"f{i}", _scalar(chance, never_null=i % 3 == 0)) for i in range(12)),
        *(_field(f"to{i}", _object(chance)) for i in range(4)),
        _field("owner", _node()),
        _field("page", _object(chance), _argument("first", _named("SCALAR", "Int"))),
    ]


def _inputs(chance: random.Random) -> list[dict[str, Any]]:
    return [
        *(_argument(f"a{i}", _scalar(chance, never_null=i == 0)) for i in range(8)),
        *(_argument(f"i{i}", _named("INPUT_OBJECT", f"I{chance.randrange(INPUTS)}")) for i in range(3)),
    ]


def _roots(chance: random.Random, prefix: str, many: int) -> list[dict[str, Any]]:
    given = [_argument("input", _never_null(_named("INPUT_OBJECT", f"I{n}"))) for n in range(many)]
    return [_field(f"{prefix}{n}", _object(chance), given[n]) for n in range(many)]


def _scalar(chance: random.Random, *, never_null: bool) -> dict[str, Any]:
    kind = _named("SCALAR", chance.choice(_SCALARS))
    return _never_null(kind) if never_null else kind


def _object(chance: random.Random) -> dict[str, Any]:
    return _named("OBJECT", f"T{chance.randrange(TYPES)}")


def _node() -> dict[str, Any]:
    return _named("INTERFACE", "Node")


def _id() -> dict[str, Any]:
    return _field("id", _never_null(_named("SCALAR", "ID")))


def _never_null(kind: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "NON_NULL", "name": None, "ofType": kind}


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "ofType": None}


def _typed(kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "description": f"A {name}.", **parts}


def _argument(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": f"What {name} is for.", "type": kind, "defaultValue": None}


def _field(name: str, kind: dict[str, Any], *args: dict[str, Any]) -> dict[str, Any]:
    told = {"description": f"The {name}.", "isDeprecated": False, "deprecationReason": None}
    return {"name": name, "type": kind, "args": list(args), **told}
