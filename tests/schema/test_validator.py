"""Values against schemas: the verdict, the explanation, and the ways a value can be hostile."""

import json
import re
import subprocess
import sys
import time
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from tests.schema.strategies import json_values, schemas, schemas_and_values
from toolpost.contracts.errors import ToolOutputError, ToolSchemaError, ToolValidationError
from toolpost.schema.validator import compile_validator

ORDER = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "string", "maxLength": 5},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number", "minimum": 0}}},
        },
        "color": {"enum": ["red", "green", "blue"]},
        "on": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}


def issues(schema: Any, instance: Any, *, own: bool = False) -> list[str]:
    validator = compile_validator(schema, own=own)
    found = validator.issues(instance)
    for line in found:
        line.encode()
    with pytest.raises(ToolValidationError):
        validator.check(instance, "t")
    return found


def nested(levels: int, leaf: Any = None) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


@pytest.mark.req("TEST-09", "GEN-18")
@pytest.mark.parametrize(
    ("change", "issue"),
    [
        ({"a": "1"}, '$.a: expected integer, got string "1" (numbers must not be quoted)'),
        ({"a": 1.5}, "$.a: expected integer, got number 1.5"),
        ({"a": True}, "$.a: expected integer, got boolean true"),
        ({"a": None}, "$.a: expected integer, got null"),
        ({"on": "True"}, '$.on: expected boolean, got string "True" (true and false must not be quoted)'),
        ({"b": 5}, "$.b: expected string, got integer 5 (text must be quoted)"),
        ({"b": "toolong"}, '$.b: expected at most 5 characters, got string "toolong"'),
        ({"b": {"x": 1}}, "$.b: expected string, got object"),
        ({"items": 3}, "$.items: expected array, got integer 3 (put it into a list)"),
        ({"items": "[1]"}, '$.items: expected array, got string "[1]" (send the JSON itself, not text of it)'),
        ({"items": [{}, {}, {"price": -1}]}, "$.items[2].price: expected at least 0, got integer -1"),
        ({"color": "gre"}, '$.color: expected one of "red", "green", "blue", got string "gre"; did you mean "green"?'),
        ({"color": 7}, '$.color: expected one of "red", "green", "blue", got integer 7'),
        ({"maybe": "7"}, '$.maybe: expected integer or null, got string "7" (numbers must not be quoted)'),
        ({"colour": "red"}, '$: unexpected "colour"; did you mean "color"?'),
        ({"zzz": 1}, '$: unexpected "zzz"; allowed are "a", "b", "items", "color", "on", "maybe"'),
    ],
)  # fmt: skip
def test_an_issue_names_the_place_what_was_expected_and_what_came(change: dict[str, Any], issue: str) -> None:
    assert issues(ORDER, {"a": 1, "b": "x", **change}) == [issue]


@pytest.mark.parametrize(
    ("schema", "instance", "issue"),
    [
        ({"required": ["b"]}, {}, '$: missing required "b"'),
        ({"properties": {"a b": {"type": "null"}}}, {"a b": 1}, '$["a b"]: expected null, got integer 1'),
        ({"const": "x"}, 1, '$: expected "x", got integer 1'),
        ({"const": [1]}, 1, "$: expected array of 1, got integer 1"),
        ({"exclusiveMinimum": 1}, 1, "$: expected more than 1, got integer 1"),
        ({"exclusiveMaximum": 1}, 1, "$: expected less than 1, got integer 1"),
        ({"maximum": 1}, 2, "$: expected at most 1, got integer 2"),
        ({"multipleOf": 2}, 3, "$: expected a multiple of 2, got integer 3"),
        ({"minLength": 1}, "", '$: expected at least 1 character, got string ""'),
        ({"pattern": "^a$"}, "b", '$: expected text that matches "^a$", got string "b"'),
        ({"minItems": 2}, [1], "$: expected at least 2 items, got array of 1"),
        ({"maxItems": 0}, [1], "$: expected at most 0 items, got array of 1"),
        ({"minProperties": 1}, {}, "$: expected at least 1 property, got object"),
        ({"maxProperties": 2}, dict.fromkeys("abc"), "$: expected at most 2 properties, got object"),
        ({"uniqueItems": True}, [1, 1], "$: expected items that differ from each other, got array of 2"),
        ({"contains": {"type": "null"}}, [1], "$: expected an item of a certain form, got array of 1"),
        ({"not": {"type": "integer"}}, 1, "$: expected something other than the form it must not have, got integer 1"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "$: expected property names of a certain form, got object"),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], "$: expected fewer items, got array of 2"),
        ({"properties": {"a": False}}, {"a": 1}, "$.a: nothing is allowed here"),
        ({"oneOf": [True, {"minimum": 0}]}, 1, "$: fits several of 2 forms, exactly one of which is allowed"),
        ({"if": {"type": "integer"}, "then": {"minimum": 3}}, 1, "$: expected at least 3, got integer 1"),
        ({"unevaluatedProperties": False}, {"x": 1}, '$: unexpected "x"'),
        ({"type": ["string", "null"]}, 1, "$: expected string or null, got integer 1 (text must be quoted)"),
        ({"type": "object"}, "{}", '$: expected object, got string "{}" (send the JSON itself, not text of it)'),
        ({"type": "integer"}, "x" * 90, f'$: expected integer, got string "{"x" * 39}…"'),
        (False, 1, "$: nothing is allowed here"),
    ],
)  # fmt: skip
def test_every_keyword_is_put_in_words(schema: Any, instance: Any, issue: str) -> None:
    assert issues(schema, instance) == [issue]


def test_of_several_forms_the_nearest_is_explained() -> None:
    def form(kind: str, field: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"kind": {"const": kind}, field: {"type": "integer"}},
            "required": ["kind", field],
        }

    schema = {"properties": {"shape": {"oneOf": [form("circle", "radius"), form("square", "side"), {"type": "null"}]}}}

    assert issues(schema, {"shape": {"kind": "square", "side": "big"}}) == [
        '$.shape: fits none of 3 allowed forms; nearest: $.shape.side: expected integer, got string "big"'
    ]


def test_forms_that_differ_in_one_name_each_are_reported_as_names() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}

    assert issues(schema, {}) == ['$: needs one of "a", "b"']
    assert "nearest" in issues({"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}, {})[0]


def test_what_lies_behind_a_reference_is_explained_like_the_rest() -> None:
    schema = {
        "properties": {"who": {"$ref": "#/$defs/person"}, "what": {"$ref": "thing"}},
        "$defs": {
            "person": {"properties": {"name": {"type": "string"}}, "additionalProperties": False},
            "thing": {"$id": "thing", "properties": {"size": {}}, "additionalProperties": False},
        },
    }

    assert issues(schema, {"who": {"nam": 1}, "what": {"siz": 1}}) == [
        '$.who: unexpected "nam"; did you mean "name"?',
        '$.what: unexpected "siz"; did you mean "size"?',
    ]


def test_a_misspelled_name_in_one_of_several_forms_is_noticed() -> None:
    schema = {
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"name": {}}, "additionalProperties": False},
        ]
    }

    (issue,) = issues(schema, {"nam": 1})

    assert issue.endswith('$: unexpected "nam"; did you mean "name"?')


def test_very_long_words_are_not_compared() -> None:
    (issue,) = issues({"enum": ["red"]}, "re" * 500)

    assert "did you mean" not in issue


@pytest.mark.parametrize("name", ["password", "note"])
def test_a_secret_value_is_never_shown(name: str) -> None:
    schema = {
        "properties": {
            "password": {"type": "integer"},
            "note": {"anyOf": [{"$ref": "#/$defs/hidden"}, {"type": "null"}]},
        },
        "$defs": {"hidden": {"type": "integer", "writeOnly": True}},
    }

    (issue,) = issues(schema, {name: "12345"})

    assert "12345" not in issue
    assert "string (hidden)" in issue
    assert "quoted" not in issue


def test_at_most_ten_issues_are_listed_and_the_rest_counted() -> None:
    found = issues({"items": {"type": "integer"}}, ["x"] * 25)

    assert found[0] == '$[0]: expected integer, got string "x"'
    assert found[10:] == ["and 15 more"]


def test_long_lists_of_allowed_values_are_cut() -> None:
    (issue,) = issues({"enum": list(range(500))}, -1)

    assert issue == "$: expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (500 in all), got integer -1"


@pytest.mark.req("DEF-15")
def test_a_value_that_does_not_fit_is_a_validation_error_of_that_tool() -> None:
    validator = compile_validator(ORDER)

    with pytest.raises(ToolValidationError) as caught:
        validator.check({"a": 1}, "shop.order")

    assert caught.value.tool_name == "shop.order"
    assert caught.value.issues == ['$: missing required "b"']
    assert str(caught.value) == 'Parameter validation failed: $: missing required "b"'


def test_a_value_that_fits_has_no_issues() -> None:
    validator = compile_validator(ORDER)
    order = {"a": 1, "b": "x", "items": [{"price": 2}]}

    validator.check(order, "shop.order")

    assert validator.is_valid(order)
    assert validator.issues(order) == []


def test_a_result_is_checked_with_an_error_of_its_own() -> None:
    with pytest.raises(ToolOutputError, match="Output validation failed"):
        compile_validator({"type": "integer"}).check("x", "t", error=ToolOutputError)


def test_the_verdict_on_a_schema_of_ones_own_is_the_bare_method_of_the_engine() -> None:
    assert type(compile_validator(ORDER, own=True).is_valid).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize(
    "reference", ["http://{}/s.json", "https://{}/s", "file:///etc/hostname", "other.json", "#/nowhere"]
)
def test_a_reference_to_elsewhere_is_never_fetched(reference: str, unvisited: str) -> None:
    elsewhere = {"$ref": reference.format(unvisited)}

    with pytest.raises(ToolSchemaError):
        compile_validator({"properties": {"a": elsewhere}})
    with pytest.raises(ToolSchemaError):
        compile_validator({"properties": {"a": elsewhere, "b": {"pattern": "(?P<n>a)"}, "c": {"pattern": r"\Z"}}})


def test_a_remote_reference_is_refused_with_the_remedy() -> None:
    with pytest.raises(ToolSchemaError, match=r"never fetched, put it under \$defs"):
        compile_validator({"$ref": "https://192.0.2.1/s.json"})


@pytest.mark.parametrize(
    "schema", [{"type": "nope"}, {"properties": {1: {}}}, {"default": nested(300)}, {"minLength": "x"}]
)
def test_an_illegal_schema_is_a_schema_error(schema: Any) -> None:
    with pytest.raises(ToolSchemaError, match="Schema is unusable"):
        compile_validator(schema)


def test_each_draft_is_read_by_its_own_rules() -> None:
    tuple_of_two = {"items": [{"type": "integer"}], "additionalItems": False}

    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema"):
        assert issues({"$schema": draft, **tuple_of_two}, [1, 2]) == ["$: expected fewer items, got array of 2"]
    with pytest.raises(ToolSchemaError):
        compile_validator(tuple_of_two)
    assert issues({"$schema": "http://x.test/own", "prefixItems": [{"type": "null"}]}, [1]) != []


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_a_format_is_a_note_in_every_draft(draft: str) -> None:
    assert compile_validator({"$schema": draft, "format": "date-time"}).is_valid("2024-01-01T00:00:00")


class TestHostileValues:
    @pytest.mark.parametrize(
        ("value", "issue"),
        [
            ({"a": 1, "b": object()}, "$.b: a value of type object is not JSON"),
            ({"a": 1, "b": {1, 2}}, "$.b: a value of type set is not JSON"),
            ({"a": "x", "items": [{"price": b"1"}]}, "$.items[0].price: a value of type bytes is not JSON"),
            ({1: 2}, "$: the key 1 is of type int; JSON keys are text"),
            ({"a": 1, "\ud800": 1}, '$: the key "\\ud800" has an unpaired surrogate and is not valid Unicode'),
            ({"a": 1, "b": ["\udfff"]}, "$.b[0]: the text has an unpaired surrogate and is not valid Unicode"),
        ],
    )
    def test_what_is_not_json_is_an_issue(self, value: Any, issue: str) -> None:
        assert issues(ORDER, value) == [issue]

    @pytest.mark.parametrize(
        ("value", "issue"),
        [
            (float("nan"), "$: expected string, got number NaN"),
            (float("-inf"), "$: expected string, got number -Infinity (text must be quoted)"),
            (Decimal("1.5"), "$: expected string, got number 1.5 (text must be quoted)"),
            (10**30, f"$: expected string, got integer {10**30} (text must be quoted)"),
            pytest.param(
                10**5000, "$: expected string, got integer of about 5000 digits (text must be quoted)", id="huge"
            ),
            ((1, 2), "$: expected string, got array of 2"),
        ],
    )
    def test_odd_numbers_and_tuples_are_an_issue(self, value: Any, issue: str) -> None:
        assert issues({"type": "string"}, value) == [issue]

    @pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**400])
    def test_integers_beyond_64_bits_are_integers(self, number: int) -> None:
        assert compile_validator({"type": "integer"}).is_valid(number)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "schema",
        [
            True,
            {"type": "array"},
            {"type": "object"},
            {"uniqueItems": True},
            {"enum": [[[1]], 2]},
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#"}, "minItems": 1, "maxItems": 3, "type": "array"},
            {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}, "minItems": 2}]},
        ],
    )
    def test_a_value_ten_thousand_levels_deep_is_valid_or_an_issue(self, schema: Any) -> None:
        validator = compile_validator(schema)

        found = validator.issues([nested(10_000), nested(10_000)])

        assert found == [] or "nested" in found[0]

    @pytest.mark.slow
    def test_a_value_that_contains_itself_is_an_issue(self) -> None:
        ring: list[Any] = []
        ring.append(ring)

        assert issues({"items": {"$ref": "#"}, "type": "array"}, ring) == ["$: nested deeper than 200 levels"]
        (heavy,) = issues({"items": {"$ref": "#"}, "uniqueItems": True}, ring)
        assert heavy.startswith("$: not checked: more than ")
        assert issues({"type": "string"}, ring) == ["$: does not fit the schema, and is too large to say where"]

    @pytest.mark.programs
    def test_a_hundred_thousand_levels_do_not_crash_the_process(self) -> None:
        program = (
            "from toolpost.schema.validator import compile_validator as c\n"
            "deep = []\n"
            "for _ in range(100_000): deep = [deep]\n"
            "print(c({'items': {'$ref': '#'}, 'maxItems': 1}).issues(deep))\n"
            "import os; os._exit(0)\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

        assert (done.returncode, done.stdout) == (0, "['$: nested deeper than 200 levels']\n")


class TestBoundedWork:
    @pytest.mark.parametrize(
        "pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(a|a)*(?!b)c$", r"^((a|aa)+)+\1?$", r"(?=(a+)+$)b", r"^([\w-.]+)+$"]
    )
    def test_a_pattern_that_explodes_elsewhere_is_bounded(self, pattern: str) -> None:
        started = time.process_time()

        (issue,) = issues({"pattern": pattern}, "a" * 40 + "!", own=True)

        assert issue.startswith("$: expected text")
        assert time.process_time() - started < 20

    def test_a_pattern_given_up_on_is_an_issue_that_says_so(self) -> None:
        (issue,) = issues({"pattern": r"^(a|a)*(?!b)c$"}, "a" * 400 + "!", own=True)

        assert "text whose pattern can be checked in bounded time" in issue

    @pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
    def test_explaining_a_schema_that_doubles_at_every_step_is_bounded(self, keyword: str) -> None:
        doubled = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(18)}
        schema = {"$ref": "#/$defs/d0", "$defs": {**doubled, "d18": {"required": ["x"]}}}
        started = time.process_time()

        found = issues(schema, {})

        assert found == ["$: does not fit the schema, which is too entangled to say where"]
        assert time.process_time() - started < 20

    def test_explaining_a_recursive_choice_is_bounded(self) -> None:
        branch = {"properties": {"a": {"$ref": "#"}}, "minProperties": 1}
        schema = {"type": ["object", "string"], "anyOf": [branch, {**branch}]}
        value: Any = 1
        for _ in range(60):
            value = {"a": value}
        started = time.process_time()

        found = issues(schema, value)

        assert found == ["$: does not fit the schema, which is too entangled to say where"]
        assert time.process_time() - started < 20

    def test_a_shallow_value_of_a_recursive_choice_is_explained(self) -> None:
        branch = {"properties": {"a": {"$ref": "#"}}, "minProperties": 1}
        schema = {"anyOf": [{"type": "string"}, {"type": "object", **branch}]}

        (issue,) = issues(schema, {"a": {"a": 1}})

        assert issue.endswith("$.a.a: expected string or object, got integer 1 (text must be quoted)")

    def test_of_a_large_value_the_first_fault_is_reported(self) -> None:
        rows = [{"n": 1}] * 50_000 + [{"n": "x"}] * 50_000
        started = time.process_time()

        found = issues({"items": {"properties": {"n": {"type": "integer"}}}}, rows)

        assert found == ['$[50000].n: expected integer, got string "x"']
        assert time.process_time() - started < 20

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("part", "value"),
        [
            ({"allOf": [{"minimum": -bound} for bound in range(1000)]}, 1),
            ({"enum": [{"n": option} for option in range(300)]}, {"n": 299}),
            ({"multipleOf": 0.01}, 1),
            ({"uniqueItems": True, "type": "array"}, list(range(30))),
        ],
    )
    def test_a_value_too_large_for_a_schema_from_outside_is_not_checked_and_reported(
        self, part: Any, value: Any
    ) -> None:
        schema = {"items": part}

        assert compile_validator(schema).issues([value] * 100) == []
        (told,) = issues(schema, [value] * 30_000)

        assert re.fullmatch(r"\$: not checked: more than [\d,]+ values are too many for a schema like this one", told)
        assert compile_validator(schema, own=True).issues([value] * 30_000) == []

    def test_a_number_that_takes_long_to_divide_is_not_checked_and_reported(self) -> None:
        schema = {"properties": {"n": {"multipleOf": 5}}}

        assert compile_validator(schema).issues({"n": 10}) == []
        assert issues(schema, {"n": 10**4000}) == [
            "$: not checked: a number is larger than 1e+15, too large for `multipleOf`"
        ]

    def test_a_large_value_is_not_copied_into_every_fault(self) -> None:
        lacking = {"required": [f"name{n}" for n in range(40)]}

        assert len(issues(lacking, {"a": 1})) == 11
        assert issues(lacking, {f"key{n}": n for n in range(20_000)}) == ['$: missing required "name0"']
        assert issues(lacking, {"a": "x" * 2_000_000}) == ["$: does not fit the schema, and is too large to say where"]

    def test_of_a_value_too_large_for_its_patterns_the_first_fault_is_reported_too(self) -> None:
        schema = {"items": {"minimum": 0}, "maxItems": 9, "pattern": r"a\Z"}

        assert issues(schema, [-1] * 31_000) == ["$: expected at most 9 items, got array of 31000"]

    def test_of_alternatives_that_allow_nothing_that_is_reported(self) -> None:
        schema = {"pattern": r"\Z", "anyOf": [False, {"type": "integer"}]}

        assert issues(schema, "x") == ["$: fits none of 2 allowed forms; nearest: $: nothing is allowed here"]

    def test_a_schema_that_only_refers_to_itself_allows_anything(self) -> None:
        assert compile_validator({"$ref": "#"}).is_valid(1)


CODED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": r"\A[a-z]+\Z"},
        "n": {"type": "integer"},
        "u": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "o": {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
    },
    "patternProperties": {"^x_": {"type": "string"}},
    "required": ["code"],
    "additionalProperties": False,
}


UNBOUNDED = r"^(?!.*\.\.)[a-z.]+$"


class TestPatternsFromOutside:
    def test_pythons_spelling_is_understood(self) -> None:
        validator = compile_validator(CODED)

        assert validator.is_valid({"code": "abc", "x_a": "y"})
        assert not validator.is_valid({"code": "ABC"})
        assert sorted(validator.issues({"n": "1", "nn": 1, "u": "x", "o": 1, "code": "A"})) == [
            '$.code: expected text that matches "\\\\A[a-z]+\\\\z", got string "A"',
            '$.n: expected integer, got string "1" (numbers must not be quoted)',
            "$.o: fits several of 2 forms, exactly one of which is allowed",
            '$.u: expected integer or null, got string "x"',
            '$: unexpected "nn"; did you mean "n"?',
        ]
        assert validator.issues({}) == ['$: missing required "code"']

    @pytest.mark.parametrize("pattern", [UNBOUNDED, r"(a)\1", "[", r"^(?:[ab]{0,50}){0,80}x$"])
    def test_one_that_nothing_bounds_is_not_matched_and_is_reported(self, pattern: str) -> None:
        schema = {"properties": {"a": {"pattern": pattern}, "b": {"pattern": "^b$"}, "n": {"type": "integer"}}}

        validator = compile_validator(schema)

        assert validator.unchecked == (pattern,)
        assert validator.is_valid({"a": "..", "b": "b", "n": 1})
        assert not validator.is_valid({"a": "..", "b": "c", "n": 1})
        assert not validator.is_valid({"a": "..", "b": "b", "n": "1"})

    def test_names_that_are_not_matched_are_all_allowed(self) -> None:
        validator = compile_validator(
            {"patternProperties": {UNBOUNDED: {"type": "integer"}}, "additionalProperties": False}
        )

        assert validator.is_valid({"a..b": "x"})

    def test_in_a_schema_of_ones_own_such_a_pattern_is_matched(self) -> None:
        validator = compile_validator({"pattern": UNBOUNDED}, own=True)

        assert (validator.is_valid("a.b"), validator.is_valid("a..b"), validator.unchecked) == (True, False, ())

    def test_in_a_schema_of_ones_own_what_the_engine_does_not_take_is_refused(self) -> None:
        with pytest.raises(ToolSchemaError, match=r"does not take the pattern '\['"):
            compile_validator({"pattern": "["}, own=True)

    def test_more_text_than_can_be_matched_in_time_is_checked_for_all_but_its_patterns(self) -> None:
        validator = compile_validator({"items": {"type": "string", "pattern": "^[ab]*a[ab]{200}$|!$"}})

        assert not validator.is_valid(["ab"])
        assert validator.is_valid(["ab" * 100_000])
        assert not validator.is_valid(["ab" * 100_000, 1])
        assert validator.issues(["ab" * 100_000, 1]) == ["$[1]: expected string, got integer 1 (text must be quoted)"]

    def test_what_is_matched_grows_no_longer_than_the_budget_however_often_a_pattern_applies(self) -> None:
        often = {"allOf": [{"pattern": "^a+$"}] * 1000}

        assert not compile_validator(often).is_valid("b" * 50)
        assert compile_validator(often).is_valid("b" * 200)

    @pytest.mark.parametrize(
        "value",
        [nested(10_000), float("nan"), 10**5000, "\ud800", {1: object()}],
        ids=["deep", "nan", "huge", "text", "key"],
    )
    def test_hostile_values_are_valid_or_an_issue(self, value: Any) -> None:
        validator = compile_validator({"items": {"$ref": "#"}, "pattern": r"a\Z", "minimum": 3})

        for line in validator.issues(value):
            line.encode()


@pytest.mark.req("TEST-09")
@given(schemas(), json_values())
@settings(deadline=None)
def test_the_verdict_agrees_with_the_reference_implementation(schema: dict[str, Any], value: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    validator = compile_validator(schema)

    assert validator.is_valid(value) is expected
    assert (validator.issues(value) == []) is expected


@given(schemas_and_values())
@settings(deadline=None)
def test_a_value_made_for_a_schema_fits_it(made: tuple[dict[str, Any], Any]) -> None:
    schema, value = made

    assert compile_validator(schema).issues(value) == []


@given(schemas(), json_values())
@settings(deadline=None)
def test_a_pattern_that_is_not_matched_refuses_nothing_more(schema: dict[str, Any], value: Any) -> None:
    loose = compile_validator({**schema, "$defs": {**schema.get("$defs", {}), "odd": {"pattern": UNBOUNDED}}})

    assert loose.is_valid(value) >= compile_validator(schema).is_valid(value)


@given(json_values())
@settings(deadline=None)
def test_an_explanation_is_short_text_that_json_can_carry(value: Any) -> None:
    found = compile_validator(ORDER).issues(value)

    assert len(found) <= 11
    assert json.loads(json.dumps(found)) == found
