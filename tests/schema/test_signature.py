"""A function's contract: its input and output schemas, its description, and how it is called with JSON."""

# ruff: noqa: ANN001, ANN003, ANN202 - functions without annotations are part of what is read.

import dataclasses
import datetime as dt
import enum
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, TypedDict, Unpack

import pytest
import typing_extensions
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, SecretStr, field_validator

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolOutputError, ToolSchemaError, ToolValidationError
from toolpost.contracts.outcomes import ToolResult
from toolpost.schema.docstrings import parse_docstring
from toolpost.schema.pydantic_types import to_jsonable
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.signature import function_schema
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from decimal import Decimal as Missing

MISSING: Any = None
UserId = NewType("UserId", int)
Names = typing_extensions.TypeAliasType("Names", list[str])


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    """How to do it."""

    depth: int
    tags: list[str]


class Person(BaseModel):
    name: str = Field(description="Who it is.", title="Full name")
    born: dt.date | None = None


class Tree(BaseModel):
    label: str
    children: "list[Tree]" = []


class SummarizeArgs(BaseModel):
    text: str
    limit: int = 3


class SummarizeResult(BaseModel):
    summary: str
    made: dt.datetime


def properties(fn: Callable[..., Any]) -> dict[str, Any]:
    return function_schema(fn).input_schema["properties"]


@pytest.mark.req("NCON-02")
def test_a_function_becomes_a_closed_object_schema_with_its_required_parameters() -> None:
    def add(a: int, b: float = 2.5) -> float:
        """Add two numbers."""
        return a + b

    schema = function_schema(add)

    assert schema.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "number", "default": 2.5}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert schema.output_schema == {"type": "number"}
    assert schema.description == "Add two numbers."
    assert (schema.render, schema.context_parameter) == (None, None)


def test_plain_scalars_are_described_as_pydantic_would() -> None:
    def plain(a: str, b: int, c: float = 1.5, d: bool = False, e: None = None) -> None:
        """Do it.

        Args:
            a: The a.
        """

    def rich(a: str, b: int, c: float = 1.5, d: bool = False, e: None = None, f: Color = Color.RED) -> None: ...

    rich.__doc__ = plain.__doc__
    expected = function_schema(rich).input_schema
    del expected["properties"]["f"], expected["$defs"]

    assert function_schema(plain).input_schema == expected


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now(ctx: ToolContext) -> str: ...  # type: ignore[empty-body]

    assert function_schema(now).input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_notes_that_cannot_be_hashed_are_no_obstacle() -> None:
    def call(a: Annotated[int, {"x": []}]) -> Annotated[int, {"x": []}]:
        return a

    assert properties(call) == {"a": {"type": "integer"}}


def test_rich_types_become_schemas_without_made_up_titles() -> None:
    def paint(
        color: Color, at: Point, when: dt.datetime, mode: Literal["fast", "slow"], by: Person, options: Options
    ) -> None: ...

    schema = function_schema(paint).input_schema

    assert schema["$defs"]["Color"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert schema["$defs"]["Options"]["properties"]["depth"] == {"type": "integer"}
    assert schema["$defs"]["Person"]["properties"]["name"]["title"] == "Full name"
    assert schema["properties"]["when"] == {"type": "string", "format": "date-time"}
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["fast", "slow"]}
    assert [d for d in schema["$defs"].values() if "title" in d] == []
    check_schema(schema, tool_name="paint")


def test_containers_and_unions_become_schemas() -> None:
    def take(
        a: list[int], b: dict[str, float], c: tuple[int, str], d: set[str], e: int | None, f: str | int
    ) -> None: ...

    found = properties(take)

    assert found["a"] == {"type": "array", "items": {"type": "integer"}}
    assert found["b"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert found["c"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert found["d"] == {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    assert found["e"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert found["f"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


def test_names_that_models_cannot_have_are_names_like_others() -> None:
    def odd(_id: float, json: str, model_config: bool, schema: str, copy: float) -> None: ...

    assert list(properties(odd)) == ["_id", "json", "model_config", "schema", "copy"]
    assert function_schema(odd).convert is None


def test_a_missing_annotation_is_any_json() -> None:
    def echo(value, other=None):  # type: ignore[no-untyped-def]
        return value

    schema = function_schema(echo)

    assert schema.input_schema["properties"] == {"value": {}, "other": {"default": None}}
    assert schema.output_schema is None


def test_defaults_are_reported_where_json_can_carry_them() -> None:
    marker = object()

    def call(
        color: Color = Color.BLUE, other: Any = marker, number: int = MISSING, password: str = "hunter2"
    ) -> None: ...

    found = properties(call)

    assert found["color"]["default"] == "blue"
    assert "default" not in found["other"]
    assert "default" not in found["number"], "null would not be accepted"
    assert "default" not in found["password"], "a secret is not shown to a model"


def test_descriptions_come_from_the_annotation_before_the_docstring() -> None:
    def search(
        query: Annotated[str, "What to look for."],
        limit: Annotated[int, Field(ge=1, le=50, description="How many.")] = 10,
        page: int = 1,
        sort: Annotated[str, typing_extensions.Doc("By what.")] = "date",
    ) -> None:
        """Search things.

        Looks everywhere.

        Args:
            query: not this one
            limit: nor this one
            page: Which page,
                counted from one.

        Returns:
            Nothing at all.
        """

    schema = function_schema(search)

    assert schema.description == "Search things.\n\nLooks everywhere."
    described = {name: found["description"] for name, found in schema.input_schema["properties"].items()}
    assert described == {
        "query": "What to look for.",
        "limit": "How many.",
        "page": "Which page, counted from one.",
        "sort": "By what.",
    }
    assert schema.input_schema["properties"]["limit"]["maximum"] == 50


def numpy_style(a: int, b: int = 1, c: int = 2) -> None:
    """Do it.

    Parameters
    ----------
    a : int
        The a.
    b, c : int, optional
        The others.
    """


def sphinx_style(a: int) -> None:
    """Do it.

    :param a: The a.
    :returns: nothing
    """


@pytest.mark.parametrize("fn", [numpy_style, sphinx_style])
def test_other_docstring_styles_are_read(fn: Callable[..., Any]) -> None:
    schema = function_schema(fn)

    assert schema.description == "Do it."
    assert schema.input_schema["properties"]["a"]["description"] == "The a."


def google_remarks(a: int) -> None:
    """Do it.

    Args:
        a: The a.

    Returns:
        Nothing.

    Notes:
        It costs money.
    """


def numpy_remarks(a: int) -> None:
    """Do it.

    Parameters
    ----------
    a : int
        The a.

    Notes
    -----
    It costs money.
    """


@pytest.mark.parametrize("fn", [google_remarks, numpy_remarks])
def test_a_remark_behind_the_parameters_is_part_of_the_description(fn: Callable[..., Any]) -> None:
    schema = function_schema(fn)

    assert schema.description == "Do it.\n\nNotes: It costs money."
    assert schema.input_schema["properties"]["a"]["description"] == "The a."


def test_one_line_may_describe_several_parameters() -> None:
    found = properties(numpy_style)

    assert found["b"]["description"] == found["c"]["description"] == "The others."


def test_an_annotation_may_be_a_string_that_names_a_later_class() -> None:
    found = function_schema(_forward).input_schema

    assert found["$defs"]["Later"]["properties"] == {"n": {"type": "integer"}}


def _forward(a: "Later", b: "int | None" = None) -> None: ...


class Later(BaseModel):
    n: int


def test_an_annotation_that_cannot_be_resolved_is_refused_with_the_remedy() -> None:
    def lost(a: "Missing") -> None: ...

    with pytest.raises(ToolSchemaError, match=r"'Missing' of 'a' cannot be resolved.*outside TYPE_CHECKING"):
        function_schema(lost)


def test_a_class_of_an_enclosing_function_is_found_when_the_function_uses_it() -> None:
    class Inner(BaseModel):
        n: int

    def use(a: "Inner") -> int:
        return Inner.model_validate(a).n

    assert "Inner" in function_schema(use).input_schema["$defs"]


def test_a_class_that_is_not_defined_yet_is_not_found() -> None:
    def use(a: "Inner") -> int:
        return Inner.model_validate(a).n

    with pytest.raises(ToolSchemaError, match="'Inner' of 'a' cannot be resolved"):
        function_schema(use)

    class Inner(BaseModel):
        n: int


@pytest.mark.parametrize("text", ["", "Add two numbers.", "Returns", "Note", "  Args  ", "@param x", "Parameters ----"])
def test_one_line_is_read_as_the_parsers_of_longer_docstrings_read_it(text: str) -> None:
    def fn(x: int) -> int:
        return x

    fn.__doc__ = text

    assert function_schema(fn).description == parse_docstring(text).description
    assert parse_docstring(text).parameters == {}


def test_one_line_may_describe_a_parameter() -> None:
    def fn(x: int) -> int:
        """:param x: A number."""
        return x

    assert function_schema(fn).input_schema["properties"]["x"]["description"] == "A number."


def test_a_docstring_in_no_known_style_is_all_description() -> None:
    def call() -> None:
        """Do it.

        :param
        """

    assert function_schema(call).description == "Do it.\n\n:param"


def test_a_signature_that_cannot_be_read_is_refused() -> None:
    def call(a: int) -> None: ...

    call.__signature__ = "none"  # type: ignore[attr-defined]

    with pytest.raises(ToolSchemaError, match="no readable signature"):
        function_schema(call)


class Looped(TypedDict):
    inner: "Looped | None"


class Marked(TypedDict):
    name: typing_extensions.Required[str]
    point: Annotated[Point, "where"]
    later: "typing_extensions.NotRequired[Options]"


def test_typed_dicts_keep_their_marks_and_may_hold_other_types() -> None:
    def call(a: Marked, b: Options | None = None) -> None: ...

    schema = function_schema(call)

    assert schema.input_schema["$defs"]["Marked"]["required"] == ["name", "point"]
    assert schema.input_schema["properties"]["b"]["anyOf"][0] == {"$ref": "#/$defs/Options"}
    assert schema.convert is not None
    assert schema.convert({"a": {"name": "x", "point": {"x": 1}}}) == {"a": {"name": "x", "point": Point(1)}}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes the standard TypedDict from 3.12 on")
def test_a_recursive_typed_dict_of_the_old_kind_is_refused_with_the_remedy() -> None:
    def call(a: Looped) -> None: ...

    with pytest.raises(ToolSchemaError, match=r"typing_extensions\.TypedDict"):
        function_schema(call)


def test_no_default_of_null_is_reported_where_null_is_not_allowed() -> None:
    def call(a: Options = MISSING, b: Literal["x"] = MISSING, c: Literal["x", 1] | None = None) -> None: ...

    found = properties(call)

    assert "default" not in found["a"]
    assert "default" not in found["b"]
    assert found["c"]["default"] is None


def annotated_context(a: int, where: ToolContext) -> None: ...
def optional_context(a: int, where: ToolContext | None = None) -> None: ...
def named_context(a: int, where: "toolpost.ToolContext") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unannotated_context(a: int, ctx) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (annotated_context, "where"),
        (optional_context, "where"),
        (named_context, "where"),
        (unannotated_context, "ctx"),
    ],
)
def test_the_context_is_left_out_of_the_schema(fn: Callable[..., Any], name: str) -> None:
    schema = function_schema(fn)

    assert schema.context_parameter == name
    assert list(schema.input_schema["properties"]) == ["a"]


def test_an_annotated_ctx_is_an_argument() -> None:
    def draw(ctx: str) -> None: ...

    assert function_schema(draw).context_parameter is None
    assert properties(draw) == {"ctx": {"type": "string"}}


def test_two_contexts_are_refused() -> None:
    def twice(a: ToolContext, b: ToolContext) -> None: ...

    with pytest.raises(ToolSchemaError, match="context twice: a, b"):
        function_schema(twice)


def positional(a: int, /) -> None: ...
def starred(*names: str) -> None: ...


class Unbound:
    def method(self, a: int) -> int:
        return a

    def __call__(self, a: int) -> int:
        """Call it."""
        return a


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (positional, "'a' is positional-only; remove the '/'"),
        (starred, r"'\*names' cannot be given by name; use 'names: list"),
        (Unbound.method, "'self' is not bound; use a bound method"),
        (len, "not a Python function"),
        (Unbound, "not a Python function"),
    ],
)
def test_what_cannot_be_called_by_name_is_refused_with_the_remedy(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(ToolSchemaError, match=message):
        function_schema(fn)


def test_bound_methods_callable_objects_partials_and_wrapped_functions_are_read() -> None:
    @functools.wraps(annotated_context)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    def power(base: int, exponent: int) -> int:
        return base**exponent

    square = function_schema(functools.partial(power, exponent=2)).input_schema

    assert list(properties(Unbound().method)) == ["a"]
    assert function_schema(Unbound()).description == "Call it."
    assert list(properties(wrapper)) == ["a"]
    assert (square["required"], square["properties"]["exponent"]["default"]) == (["base"], 2)


def test_a_type_that_json_cannot_carry_is_refused() -> None:
    class Strange: ...

    def take(a: Strange) -> None: ...

    take.__annotations__["a"] = Strange
    with pytest.raises(ToolSchemaError, match="use types that JSON can carry"):
        function_schema(take)


def test_unpacked_keyword_arguments_are_refused_with_the_remedy() -> None:
    def log(**fields: Unpack[Options]) -> None: ...

    with pytest.raises(ToolSchemaError, match=r"'\*\*fields' is unpacked; write its fields as separate parameters"):
        function_schema(log)


def test_extra_keyword_arguments_are_allowed_and_typed() -> None:
    def log(event: str, **fields: Point) -> None: ...

    schema = function_schema(log)

    assert schema.input_schema["additionalProperties"] == {"$ref": "#/$defs/Point"}
    assert schema.input_schema["required"] == ["event"]
    assert schema.convert is not None
    assert schema.convert({"event": "x", "at": {"x": 1}}) == {"event": "x", "at": Point(1)}


def test_plain_extra_keyword_arguments_need_no_conversion() -> None:
    def log(event: str, **fields): ...  # type: ignore[no-untyped-def]

    schema = function_schema(log)

    assert schema.input_schema["additionalProperties"] is True
    assert schema.convert is None


async def summarize(args: SummarizeArgs, ctx) -> SummarizeResult:  # type: ignore[no-untyped-def]
    """Make a text shorter."""
    raise NotImplementedError


def test_a_single_model_named_args_is_the_input_itself() -> None:
    schema = function_schema(summarize)

    assert schema.input_schema["properties"] == {
        "text": {"type": "string"},
        "limit": {"type": "integer", "default": 3},
    }
    assert schema.input_schema["additionalProperties"] is False
    assert schema.context_parameter == "ctx"
    assert schema.convert is not None
    assert schema.convert({"text": "x"}) == {"args": SummarizeArgs(text="x")}


def test_a_single_model_that_wants_more_may_have_more() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    def call(params: Open) -> None: ...

    assert function_schema(call).input_schema["additionalProperties"] is True


def test_a_single_model_of_another_name_or_shape_is_an_argument_like_others() -> None:
    class Numbers(RootModel[list[int]]): ...

    def by_name(person: Person) -> None: ...
    def by_shape(args: Numbers) -> None: ...

    assert list(properties(by_name)) == ["person"]
    assert list(properties(by_shape)) == ["args"]


def test_a_recursive_model_has_its_keywords_on_top() -> None:
    def grow(input: Tree) -> Tree:
        return input

    schema = function_schema(grow)

    assert schema.input_schema["type"] == "object"
    assert schema.output_schema is not None
    assert schema.output_schema["type"] == "object"
    check_schema(schema.input_schema, tool_name="grow")
    assert compile_validator(schema.input_schema).is_valid({"label": "a", "children": [{"label": "b"}]})


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        None,
        Any,
        object,
        list,
        dict[str, list[int | None]],
        Sequence[str],
        Mapping[str, Any],
        pytest.param(Literal["a", 1] | None, id="literal-or-none"),
        Optional[bool],  # noqa: UP045 - the old spelling
        UserId,
        Names,
        Options,
        pytest.param(list[Options], id="list-of-typed-dicts"),
        Annotated[str, "words", Field(pattern="^a", max_length=9)],
    ],
)
def test_plain_json_is_passed_straight_to_the_function(annotation: Any) -> None:
    def call(a): ...  # type: ignore[no-untyped-def]

    call.__annotations__["a"] = annotation
    convert = function_schema(call).convert
    given = {"a": {"depth": 3}}

    assert convert is None or convert(given) is given


@pytest.mark.parametrize(
    ("annotation", "given", "read"),
    [
        (int, 5.0, "5"),
        (Optional[int], 5.0, "5"),  # noqa: UP045 - the old spelling
        (list[int], [1, 2.0], "[1, 2]"),
        (Options, {"depth": 3.0}, "{'depth': 3}"),
        pytest.param(int | float, 5.0, "5.0", id="int-or-float"),
        (dict[str, Any], {"x": 5.0}, "{'x': 5.0}"),
    ],
)
def test_a_whole_number_is_an_int_however_json_wrote_it(annotation: Any, given: Any, read: str) -> None:
    def call(a, page: int = 1): ...  # type: ignore[no-untyped-def]

    call.__annotations__["a"] = annotation
    convert = function_schema(call).convert

    assert convert is not None
    assert repr(convert({"a": given})["a"]) == read


@pytest.mark.parametrize(
    ("annotation", "given", "made"),
    [
        (Point, {"x": 1}, Point(1)),
        (Person, {"name": "Ann", "born": "2001-02-03"}, Person(name="Ann", born=dt.date(2001, 2, 3))),
        (dt.timedelta, "PT5S", dt.timedelta(seconds=5)),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Color, "red", Color.RED),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (list[Point] | None, [{"x": 1}], [Point(1)]),
        (Annotated[int, BeforeValidator(lambda value: value + 1)], 1, 2),
        pytest.param(Annotated[int | str, Field(ge=1)], 2, 2, id="constrained-union"),
        pytest.param(Annotated[int, Field(default=7)], 7, 7, id="field-with-default"),
        (bytes, "abc", b"abc"),
    ],
)
def test_other_types_are_built_from_json(annotation: Any, given: Any, made: Any) -> None:
    def call(a, n: int): ...  # type: ignore[no-untyped-def]

    call.__annotations__["a"] = annotation
    convert = function_schema(call).convert

    assert convert is not None
    assert convert({"a": given, "n": 2.0}) == {"a": made, "n": 2}


def test_a_strict_model_takes_dates_as_text_too() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        at: dt.date

    def call(at: Strict) -> None: ...

    convert = function_schema(call).convert

    assert convert is not None
    assert convert({"at": {"at": "2020-01-02"}})["at"].at == dt.date(2020, 1, 2)


def test_a_field_may_stand_as_the_default_and_give_an_alias() -> None:
    def send(to: str, sender: str = Field(alias="from"), copies: int = Field(1, description="How many.")) -> None: ...

    schema = function_schema(send)

    assert schema.input_schema["required"] == ["to", "from"]
    assert schema.input_schema["properties"]["copies"] == {"type": "integer", "default": 1, "description": "How many."}
    assert schema.convert is not None
    assert schema.convert({"to": "a", "from": "b"}) == {"to": "a", "sender": "b", "copies": 1}


@pytest.mark.req("DEF-15")
def test_what_cannot_be_built_is_a_validation_error_that_says_where() -> None:
    def call(at: dt.datetime, who: Person) -> None: ...

    convert = function_schema(call).convert
    assert convert is not None

    with pytest.raises(ToolValidationError) as caught:
        convert({"at": "soon", "who": {}})

    at, who = caught.value.issues
    assert at.startswith("$.at: must be a valid datetime")
    assert at.endswith('got string "soon"')
    assert who == '$.who: missing required "name"'


def test_a_secret_is_not_reported_when_it_cannot_be_used() -> None:
    class Login(BaseModel):
        phrase: SecretStr

        @field_validator("phrase")
        @classmethod
        def check(cls, value: SecretStr) -> SecretStr:
            raise ValueError(f"{value.get_secret_value()} is too short")

    def login(args: Login) -> None: ...

    convert = function_schema(login).convert
    assert convert is not None

    with pytest.raises(ToolValidationError) as caught:
        convert({"phrase": "swordfish"})

    assert caught.value.issues == ["$.phrase: not accepted, got string (hidden)"]


def test_arguments_that_are_not_json_are_explained_by_their_types() -> None:
    def call(at: Point) -> None: ...

    convert = function_schema(call).convert
    assert convert is not None

    with pytest.raises(ToolValidationError, match=r"\$\.at: .*got Python object"):
        convert({"at": object()})


def test_results_are_described_and_rendered_as_they_are_written() -> None:
    schema = function_schema(summarize)
    result = SummarizeResult(summary="x", made=dt.datetime(2020, 1, 2, tzinfo=dt.UTC))

    assert schema.output_schema is not None
    assert schema.output_schema["required"] == ["summary", "made"]
    assert schema.render is not None
    assert schema.render(result) == {"summary": "x", "made": "2020-01-02T00:00:00Z"}


def test_aliases_are_used_in_results_and_in_their_schema_alike() -> None:
    class Mail(BaseModel):
        sender: str = Field(serialization_alias="from")

    def read() -> list[Mail]: ...  # type: ignore[empty-body]

    read.__annotations__["return"] = list[Mail]
    schema = function_schema(read)

    assert schema.output_schema is not None
    assert schema.render is not None
    rendered = schema.render([Mail(sender="ann")])
    assert rendered == [{"from": "ann"}]
    assert compile_validator(schema.output_schema).is_valid(rendered)


def test_returning_none_promises_null() -> None:
    def nothing() -> None: ...

    assert function_schema(nothing).output_schema == {"type": "null"}


class Opaque: ...


@pytest.mark.parametrize(
    "annotation",
    [Any, ToolResult, ToolOutput, ToolOutput | None, "ToolResult | Unknown", "Unknown", bytes, str | bytes, Opaque],
)
def test_no_output_schema_is_promised_for(annotation: Any) -> None:
    def call(): ...  # type: ignore[no-untyped-def]

    call.__annotations__["return"] = annotation
    schema = function_schema(call)

    assert (schema.output_schema, schema.render) == (None, None)


def test_a_result_that_cannot_be_rendered_is_an_output_error() -> None:
    def call() -> list[Point]: ...  # type: ignore[empty-body]

    render = function_schema(call).render

    assert render is not None
    with pytest.raises(ToolOutputError, match="type Opaque cannot be written as JSON"):
        render(Opaque())


def test_any_common_python_value_becomes_json() -> None:
    value = {"p": Point(1), "when": dt.date(2020, 1, 2), "s": {1}, "m": Person(name="A"), "b": b"\xff"}

    assert to_jsonable(value) == {
        "p": {"x": 1, "y": 0},
        "when": "2020-01-02",
        "s": [1],
        "m": {"name": "A", "born": None},
        "b": "_w==",
    }


def test_what_is_not_json_is_an_output_error_that_names_the_type() -> None:
    with pytest.raises(ToolOutputError, match="type Opaque"):
        to_jsonable(Opaque())


def test_a_value_that_contains_itself_is_an_output_error() -> None:
    ring: list[Any] = []
    ring.append(ring)

    with pytest.raises(ToolOutputError, match="type list"):
        to_jsonable(ring)


def test_one_typed_dict_used_twice_is_one_definition() -> None:
    def call(a: Options, b: list[Options]) -> dict[str, Options]:
        return {"a": a, "b": b[0]}

    schema = function_schema(call)

    assert list(schema.input_schema["$defs"]) == ["Options"]
    assert schema.input_schema["$defs"]["Options"]["description"] == "How to do it."
    assert schema.render is None


def test_no_type_adapter_is_kept_for_plain_functions() -> None:
    def add(a: float, b: dict[str, Any]) -> list[str]: ...  # type: ignore[empty-body]

    schema = function_schema(add)
    size = sys.getsizeof(schema) + sum(sys.getsizeof(getattr(schema, name)) for name in schema.__struct_fields__)

    assert (schema.convert, schema.render) == (None, None)
    assert size < 2048
