"""Arguments become the paths, queries, headers and cookies that OpenAPI's styles describe."""

from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.specs import build_request
from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.sources.openapi.models import ApiOperation, Parameter
from toolpost.sources.requests import PlannedRequest

SERVER = "https://api.example.org/v1"
LIST = ["blue", "black", "brown"]
COLOR = {"R": 100, "G": 200, "B": 150}
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALAR = st.none() | st.booleans() | st.integers() | TEXT
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


def planned(path: str = "/things", value: Any = None, server: str = SERVER, **parameter: Any) -> PlannedRequest:
    location = parameter.pop("location", "query")
    given = Parameter(**{"name": "color", "location": location, "argument": "color", "schema": True, **parameter})
    operation = ApiOperation(tool_name="t", method="get", path=path, servers=(server,), parameters=(given,))
    return build_request(operation, {"color": value})


def in_path(value: Any, path: str = "/{color}", **parameter: Any) -> str:
    address = planned(path, value, location="path", **{"style": "simple", "explode": False, **parameter}).address
    return address.removeprefix(SERVER)


def in_query(value: Any, **parameter: Any) -> str:
    return planned(value=value, **parameter).url.removeprefix(f"{SERVER}/things")


def header(value: Any, name: str = "color", **parameter: Any) -> str | None:
    sent = planned(value=value, location="header", **{"style": "simple", "explode": False, "name": name, **parameter})
    return dict(sent.wire_headers).get(name)


def cookie(value: Any, **parameter: Any) -> str | None:
    return dict(planned(value=value, location="cookie", **parameter).wire_headers).get("Cookie")


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("simple", False, "blue", "/blue"),
        ("simple", False, LIST, "/blue,black,brown"),
        ("simple", True, LIST, "/blue,black,brown"),
        ("simple", False, COLOR, "/R,100,G,200,B,150"),
        ("simple", True, COLOR, "/R=100,G=200,B=150"),
        ("label", False, "blue", "/.blue"),
        ("label", False, LIST, "/.blue,black,brown"),
        ("label", True, LIST, "/.blue.black.brown"),
        ("label", False, COLOR, "/.R,100,G,200,B,150"),
        ("label", True, COLOR, "/.R=100.G=200.B=150"),
        ("matrix", False, "blue", "/;color=blue"),
        ("matrix", False, LIST, "/;color=blue,black,brown"),
        ("matrix", True, LIST, "/;color=blue;color=black;color=brown"),
        ("matrix", False, COLOR, "/;color=R,100,G,200,B,150"),
        ("matrix", True, COLOR, "/;R=100;G=200;B=150"),
    ],
)
def test_each_style_of_a_path(style: str, explode: bool, value: Any, expected: str) -> None:
    assert in_path(value, style=style, explode=explode) == expected


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "blue", "?color=blue"),
        ("form", True, "", "?color="),
        ("form", True, LIST, "?color=blue&color=black&color=brown"),
        ("form", False, LIST, "?color=blue,black,brown"),
        ("form", False, ["a,b", "c"], "?color=a%2Cb,c"),
        ("form", True, COLOR, "?R=100&G=200&B=150"),
        ("form", False, COLOR, "?color=R,100,G,200,B,150"),
        ("form", True, {"a": [1, 2], "b": {"c": 3}}, "?a=1&a=2&b=%7B%22c%22%3A3%7D"),
        ("spaceDelimited", False, LIST, "?color=blue%20black%20brown"),
        ("spaceDelimited", False, COLOR, "?color=R%20100%20G%20200%20B%20150"),
        ("spaceDelimited", True, LIST, "?color=blue&color=black&color=brown"),
        ("pipeDelimited", False, LIST, "?color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, COLOR, "?color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("deepObject", False, {"a": {"b": [1, 2]}}, "?color%5Ba%5D%5Bb%5D%5B%5D=1&color%5Ba%5D%5Bb%5D%5B%5D=2"),
        ("deepObject", True, [{"p": 1}, {"p": 2}], "?color%5B0%5D%5Bp%5D=1&color%5B1%5D%5Bp%5D=2"),
        ("deepObject", True, "blue", "?color=blue"),
    ],
)
def test_each_style_of_a_query(style: str, explode: bool, value: Any, expected: str) -> None:
    assert in_query(value, style=style, explode=explode) == expected


@pytest.mark.parametrize(
    ("explode", "value", "expected"),
    [
        (False, "blue", "blue"),
        (False, LIST, "blue,black,brown"),
        (False, COLOR, "R,100,G,200,B,150"),
        (True, COLOR, "R=100,G=200,B=150"),
        (False, "a b/c?d=é", "a b/c?d=é"),
    ],
)
def test_each_form_of_a_header(explode: bool, value: Any, expected: str) -> None:
    assert header(value, explode=explode) == expected


@pytest.mark.parametrize(
    ("explode", "value", "expected"),
    [
        (True, "blue", "color=blue"),
        (False, LIST, "color=blue,black,brown"),
        (True, LIST, "color=blue; color=black; color=brown"),
        (False, COLOR, "color=R,100,G,200,B,150"),
        (True, COLOR, "R=100; G=200; B=150"),
        (True, "YWJj/+==", "color=YWJj/+=="),
        (True, 'a; b="é"', "color=a%3B%20b=%22%C3%A9%22"),
    ],
)
def test_each_form_of_a_cookie(explode: bool, value: Any, expected: str) -> None:
    assert cookie(value, explode=explode) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (3.0, "3"),
        (-0.0, "0"),
        (1e-7, "0.0000001"),
        (1.5e22, "15000000000000000000000"),
        (0.1, "0.1"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.10"),
        (2**80, "1208925819614629174706176"),
    ],
)
def test_numbers_and_booleans_are_written_plainly(value: Any, expected: str) -> None:
    assert in_query(value) == f"?color={expected}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), pytest.param(10**5000, id="long"), {1, 2}])
def test_what_has_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ToolValidationError, match="'color' cannot be sent in the query"):
        in_query(value)


def test_a_parameter_with_content_is_one_document() -> None:
    assert in_query({"a": [1, None]}, content_type="application/json") == "?color=%7B%22a%22%3A%5B1%2Cnull%5D%7D"
    assert in_query("a b", content_type="text/plain") == "?color=a%20b"
    assert header({"é": 1}, content_type="application/json") == '{"\\u00e9":1}'
    assert cookie({"a": 1}, content_type="application/json") == "color={%22a%22:1}"
    assert in_path({"a": 1}, content_type="application/json") == "/%7B%22a%22%3A1%7D"


def test_reserved_characters_stay_where_they_are_allowed_and_cannot_end_the_value() -> None:
    value = "a/b?c:d@e,f;g=h&i#j+k[l] %2F 100%"
    expected = "?color=a/b?c:d@e,f;g=h%26i%23j%2Bk%5Bl%5D%20%2F%20100%25"
    assert in_query(value, allow_reserved=True) == expected
    assert in_path("a/b?c#d:e%2Fé", allow_reserved=True) == "/a%2Fb%3Fc%23d:e%252F%C3%A9"


def test_what_is_unset_is_not_sent() -> None:
    assert in_query(None) == ""
    assert in_query([]) == ""
    assert in_query({}) == ""
    assert in_query([None, "a", None]) == "?color=a"
    assert in_query({"a": None, "b": 1}, style="deepObject") == "?color%5Bb%5D=1"
    assert in_query([], allow_empty=True) == "?color="
    assert header(None) is None
    assert cookie(None) is None


def test_what_is_required_must_be_there() -> None:
    with pytest.raises(ToolValidationError, match="'color' is required, and null cannot be sent in its place"):
        in_query(None, required=True)


def test_an_argument_that_no_one_knows_is_refused() -> None:
    operation = ApiOperation(tool_name="t", method="get", path="/", servers=(SERVER,))
    with pytest.raises(ToolValidationError, match="unknown argument 'colour'; known are: none"):
        build_request(operation, {"colour": 1})


@pytest.mark.parametrize("value", ["", [], {}, [""], [None], None])
def test_a_path_never_loses_a_segment(value: Any) -> None:
    with pytest.raises(ToolValidationError, match=r"empty|required"):
        in_path(value)


@pytest.mark.parametrize("style", ["simple", "label", "matrix"])
@pytest.mark.parametrize("value", ["..", ".", "../admin", "a/../../b", "..\\admin", ["a", "../b"], {"k": ".."}])
def test_a_path_never_walks_up(value: Any, style: str) -> None:
    with pytest.raises(ToolValidationError, match=r"the path segment '\.' or '\.\.'"):
        in_path(value, style=style)


def test_a_template_that_walks_up_is_refused() -> None:
    with pytest.raises(ToolValidationError, match="change the path"):
        in_path("a", path="/{color}/..")
    assert in_path(".a.", path="/x{color}..") == "/x.a..."


def test_a_template_may_let_a_value_span_segments_but_not_walk_up() -> None:
    assert in_path("docs/a b?.txt", path="/files/{color+}") == "/files/docs/a%20b%3F.txt"
    assert in_path("docs/a", path="/files/{+color}") == "/files/docs/a"
    with pytest.raises(ToolValidationError, match="change the path"):
        in_path("docs/../../secret", path="/files/{color+}")


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "a\x1bb", "\x7f", " a", "a\t", "\ud800"])
def test_a_header_carries_no_line_breaks_and_no_control_characters(value: str) -> None:
    with pytest.raises(ToolValidationError, match="'color' cannot be sent in the header"):
        header(value)


@pytest.mark.parametrize("location", ["path", "query", "header", "cookie"])
def test_half_a_surrogate_pair_is_refused_everywhere(location: str) -> None:
    with pytest.raises(ToolValidationError, match="half of a surrogate pair"):
        planned("/{color}" if location == "path" else "/", "\ud800x", location=location)


@pytest.mark.parametrize(("style", "item"), [("spaceDelimited", "a b"), ("pipeDelimited", "a|b")])
def test_an_item_that_holds_the_separator_is_refused(style: str, item: str) -> None:
    with pytest.raises(ToolValidationError, match="the separator of items"):
        in_query([item, "c"], style=style, explode=False)
    with pytest.raises(ToolValidationError, match="the separator of items"):
        header(["a,b", "c"])


def test_headers_that_belong_to_the_connection_are_left_to_it() -> None:
    assert [header("1", name=name) for name in ("Content-Length", "Host", "Transfer-Encoding")] == [None] * 3


def test_a_document_cannot_smuggle_a_header_by_its_name() -> None:
    with pytest.raises(ToolValidationError, match="not a valid header name"):
        header("1", name="X\r\nEvil: 1")


def test_names_are_encoded_too() -> None:
    assert in_query(1, name="filter[a&b]") == "?filter%5Ba%26b%5D=1"
    assert cookie(1, name="a;b") == "a%3Bb=1"
    assert in_path("x", name="a b", path="/{a b}", style="matrix") == "/;a%20b=x"


@pytest.mark.parametrize(
    ("server", "path", "expected"),
    [
        ("https://api.example.com/v2", "/x/{color}", "https://api.example.com/v2/x/7"),
        ("https://api.example.com/v2/", "/x/{color}/", "https://api.example.com/v2/x/7/"),
        ("https://api.example.com", "x y/{color}:run", "https://api.example.com/x%20y/7:run"),
        ("https://api.example.com/a b?v=1", "/{color}", "https://api.example.com/a%20b/7?v=1"),
        ("https://api.example.com", "/{color}?acl&mode=x#upload", "https://api.example.com/7?acl=&mode=x"),
    ],
)
def test_server_and_path_make_the_address(server: str, path: str, expected: str) -> None:
    assert planned(path, 7, server=server, location="path").url == expected


@pytest.mark.parametrize("server", ["", "/v1", "ftp://h/", "https://", "http://[::1"])
def test_a_server_that_is_no_url_is_an_error_that_says_so(server: str) -> None:
    with pytest.raises(ToolSchemaError, match="not an http or https URL"):
        planned("/x", 1, server=server)


def test_an_operation_without_a_server_or_with_an_undeclared_place_says_so() -> None:
    with pytest.raises(ToolSchemaError, match="no server"):
        build_request(ApiOperation(tool_name="t", method="get", path="/x", servers=()), {})
    with pytest.raises(ToolSchemaError, match=r"does not declare 'id' in the path '/\{id\}'"):
        build_request(ApiOperation(tool_name="t", method="get", path="/{id}", servers=(SERVER,)), {})


@settings(deadline=None)
@given(TEXT)
def test_any_text_in_a_query_is_read_as_it_was(text: str) -> None:
    query = in_query([text, "next"]).removeprefix("?")
    assert parse_qsl(query, keep_blank_values=True) == [("color", text), ("color", "next")]
    assert query.isascii()


@settings(deadline=None)
@given(TEXT)
def test_any_text_in_a_path_is_one_segment_or_refused(text: str) -> None:
    try:
        path = in_path(text, path="/before/{color}/after")
    except ToolValidationError:
        assert text == "" or {".", ".."} & set(text.replace("\\", "/").split("/"))
        return
    _, before, segment, after = path.split("/")
    assert (before, unquote(segment), after) == ("before", text, "after")
    assert not set(segment) & set("?#/\\ ")


@settings(deadline=None)
@given(TEXT)
def test_any_text_in_a_cookie_is_read_as_it_was(text: str) -> None:
    sent = cookie(text)
    assert sent is not None
    assert unquote(sent.removeprefix("color=")) == text
    assert not set(sent) & set(' ",;\\\r\n\0')


@settings(deadline=None)
@given(JSON)
def test_any_value_in_a_query_makes_pairs_or_is_refused(value: Any) -> None:
    for style in ("form", "spaceDelimited", "pipeDelimited", "deepObject"):
        for explode in (True, False):
            try:
                query = in_query(value, style=style, explode=explode)
            except ToolValidationError:
                continue
            assert query.isascii()
            assert query == "" or all("=" in pair for pair in query.removeprefix("?").split("&"))
