"""Secrets are taken out of whatever is told, and nothing else is changed."""

import base64
import json
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toolpost.contracts.events import CallRef, EventCode, JsonText, RunEvent
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.policy.secret_shapes import MASK
from toolpost.schema.secrets import SecretPaths, secret_paths

SECRET = 'pa/ss "wörd"+\\1'


@pytest.mark.req("MISC-28")
@pytest.mark.parametrize(
    "told",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
    ids=["raw", "json", "json-unicode", "url", "url-path", "url-form", "base64", "base64-url"],
)
def test_a_known_secret_is_masked_in_each_form_it_may_take(told: str) -> None:
    text = Redactor([SECRET]).text(f"before {told} after")

    assert text.startswith(f"before {MASK}")
    assert text.endswith(" after")
    assert told.rstrip("=") not in text


@pytest.mark.req("MISC-28")
@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "ann@example.org"])
def test_a_secret_is_found_inside_basic_credentials(user: str) -> None:
    header = base64.b64encode(f"{user}:hunter22-and-more".encode()).decode()

    assert len(Redactor(["hunter22-and-more"]).text(header).replace(MASK, "")) <= len(user) * 4 / 3 + 6


@pytest.mark.req("MISC-28")
def test_a_secret_is_masked_in_keys_lists_and_numbers_too() -> None:
    redactor = Redactor(["hunter22", "73519042"])

    told = redactor.value({"x-hunter22": ["a", ("hunter22", 73519042), {"b": "is hunter22!"}]})

    assert told == {f"x-{MASK}": ["a", [MASK, MASK], {"b": f"is {MASK}!"}]}


def test_a_number_of_any_kind_may_be_a_secret() -> None:
    assert Redactor(["4000", "0.12345"]).value([4000, 0.12345, 40001, True, HTTPStatus.OK]) == [
        MASK,
        MASK,
        40001,
        True,
        200,
    ]


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redactor(["hunter", "hunter22"]).text("hunter22 hunter") == f"{MASK} {MASK}"


def test_secrets_can_be_learned_later() -> None:
    redactor = Redactor()
    before = redactor.text("hunter22")

    redactor.learn(["hunter22"])

    assert (before, redactor.text("hunter22")) == ("hunter22", MASK)


@pytest.mark.parametrize("short", ["", "a", "abc", "     "])
def test_a_secret_too_short_to_be_one_does_not_blot_out_ordinary_text(short: str) -> None:
    text = "abc is a     short text"

    assert Redactor([short]).text(text) == text


@pytest.mark.req("MISC-28")
def test_values_under_secret_names_are_masked_at_any_depth() -> None:
    told = Redactor().plain(
        {"params": {"name": "ann", "db": [{"password": "x", "port": 1}], "API_KEY": 7, "auth": {"refreshToken": ["y"]}}}
    )

    assert told == {
        "params": {
            "name": "ann",
            "db": [{"password": MASK, "port": 1}],
            "API_KEY": MASK,
            "auth": {"refreshToken": MASK},
        }
    }


def test_a_secret_that_is_not_given_stays_absent() -> None:
    assert Redactor().value({"password": None}) == {"password": None}


def marks(spec: ToolSpec) -> dict[str, SecretPaths]:
    return {"arguments": secret_paths(spec.input_schema), "results": secret_paths(spec.output_schema or {})}


MARKED = ToolSpec(
    name="login",
    input_schema={
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "pin": {"type": "string", "format": "password"},
            "seed": {"type": "integer", "writeOnly": True},
            "codes": {"type": "array", "items": {"type": "string", "writeOnly": True}},
            "headers": {"type": "object", "additionalProperties": {"type": "string", "format": "password"}},
            "profile": {"$ref": "#/$defs/Profile"},
        },
        "$defs": {"Profile": {"type": "object", "properties": {"answer": {"type": "string", "writeOnly": True}}}},
    },
)


@pytest.mark.req("MISC-28")
@pytest.mark.parametrize("key", ["params", "input", "arguments"])
def test_arguments_that_a_schema_marks_are_masked_wherever_they_lie(key: str) -> None:
    arguments = {
        "user": "ann",
        "pin": "0000",
        "seed": 7,
        "codes": ["a", "b"],
        "headers": {"X-One": "c"},
        "profile": {"answer": "d", "age": 30},
    }

    told = Redactor().for_tool(**marks(MARKED))({key: arguments})

    assert told[key] == {
        "user": "ann",
        "pin": MASK,
        "seed": MASK,
        "codes": [MASK, MASK],
        "headers": {"X-One": MASK},
        "profile": {"answer": MASK, "age": 30},
    }


def test_marks_of_the_input_schema_say_nothing_about_other_facts() -> None:
    facts = {"summary": {"pin": "a pin on a map"}}

    assert Redactor().for_tool(**marks(MARKED))(facts) == facts


@pytest.mark.parametrize("key", ["summary", "result"])
def test_results_that_a_schema_marks_are_masked_too(key: str) -> None:
    parts = {"type": "object", "properties": {"code": {"type": "string", "format": "password"}}}
    part, whole = (ToolSpec(name="make", output_schema=schema) for schema in (parts, {**parts, "writeOnly": True}))

    assert Redactor().for_tool(**marks(part))({key: {"code": "0000", "id": 7}}) == {key: {"code": MASK, "id": 7}}
    assert Redactor().for_tool(**marks(whole))({key: {"code": "0000", "id": 7}}) == {key: MASK}


@pytest.mark.req("MISC-28")
def test_input_is_redacted_before_it_enters_an_event() -> None:
    redact = Redactor(["hunter22"]).for_tool(**marks(MARKED))
    call = CallRef("run_1", "call_1", "login", "acme", "ann", "corr_1", redact)
    arguments = JsonText('{"user": "hunter22", "pin": "0000", "note": "my hunter22"}')

    event = RunEvent(EventCode.TOOL_CALL_REQUESTED, 1.0, call, {"params": arguments})

    assert event.payload["params"] == {"user": MASK, "pin": MASK, "note": f"my {MASK}"}
    assert event.payload["tool_name"] == "login"


class Odd:
    def __str__(self) -> str:
        return "odd hunter22"


def test_values_that_are_not_json_are_reported_as_text_without_secrets() -> None:
    told = Redactor(["hunter22"]).value({"a": Odd(), "b": b"hunter22", "c": MappingProxyType({"d": "hunter22"})})

    assert told == {"a": f"odd {MASK}", "b": f"b'{MASK}'", "c": {"d": MASK}}


def test_what_lies_too_deep_to_look_at_is_masked_unseen() -> None:
    deep: Any = "hunter22"
    for _ in range(300):
        deep = [deep]

    told = json.dumps(Redactor(["hunter22"]).value(deep))

    assert "hunter22" not in told
    assert MASK in told


def test_huge_numbers_pass() -> None:
    assert Redactor(["hunter22"]).value([10**5000, float("inf")]) == [10**5000, float("inf")]


@pytest.mark.parametrize("secret", ["000000ß", "000000ŉ", "passwoﬁ", "ßßßß"])
def test_a_secret_that_folding_case_makes_longer_is_masked_where_it_stands_alone(secret: str) -> None:
    assert Redactor([secret]).plain({"params": [secret, secret.upper()]}) == {"params": [MASK, MASK]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(categories=["N", "P"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_without_a_secret_nothing_is_changed(value: Any) -> None:
    assert Redactor(["a secret that is in none of them"]).value(value) == value


@pytest.mark.req("MISC-28")
@settings(deadline=None)
@given(st.data())
def test_a_learned_secret_never_survives_in_what_is_reported(data: st.DataObject) -> None:
    secret = data.draw(st.text(st.characters(codec="utf-8", exclude_characters=MASK + "\0"), min_size=4, max_size=20))
    assume(len(secret.strip()) >= 4)
    hidden = st.sampled_from([secret, quote(secret), quote_plus(secret), json.dumps(secret), secret.encode()])
    texts = st.tuples(st.text(), hidden, st.text()).map(lambda parts: "".join(map(str, parts))) | hidden
    keys = st.sampled_from(["params", "summary", "error_message"])
    facts = data.draw(st.dictionaries(keys, st.lists(texts) | st.dictionaries(texts.map(str), texts)))

    told = Redactor([secret]).plain(facts)

    for rendered in (json.dumps(told), json.dumps(told, ensure_ascii=False)):
        read_back = json.loads(rendered)
        assert secret not in _all_text(read_back)


def _all_text(value: Any) -> str:
    match value:
        case dict():
            return "\0".join(_all_text(part) for item in value.items() for part in item)
        case list():
            return "\0".join(map(_all_text, value))
        case _:
            return str(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://u:pw@h/x", "https://u:[redacted]@h/x"),
        ("https://u:p:w@h/", "https://u:[redacted]@h/"),
        ("GET https://h/p?api_key=abc&x=1 failed", "GET https://h/p?api_key=[redacted]&x=1 failed"),
        ("https://h/p?x=1#access_token=abc", "https://h/p?x=1#access_token=[redacted]"),
        ("https://h/?key=abc&cx=1", "https://h/?key=[redacted]&cx=1"),
        ("https://h/?api%5Fkey=abc", "https://h/?api%5Fkey=[redacted]"),
        ("https://h/a?X-Amz-Signature=abc", "https://h/a?X-Amz-Signature=[redacted]"),
        ("http://h:80/p?token_count=3&page=2", "http://h:80/p?token_count=3&page=2"),
        ("the key=abc is no URL's", "the key=abc is no URL's"),
    ],
)
def test_credentials_in_a_url_are_not_reported(text: str, told: str) -> None:
    redactor = Redactor()

    assert redactor.redact(text) == told
    assert redactor.text(text) == text  # a result is of no use without them
    assert redactor.plain({"url": text}) == {"url": told}
    assert redactor.plain({"params": {"url": text}}) == {"params": {"url": told}}
    assert redactor.plain({"params": {"urls": [text]}}) == {"params": {"urls": [told]}}


@pytest.mark.parametrize("at", [10, 90, 99, 100, 101, 150, 400, 500, 900])
def test_where_a_text_is_cut_no_part_of_a_secret_is_left(at: int) -> None:
    secret = "kT9xVn8LmPf2Ya29a0ZqWb7Rr3-with-more-behind"
    redactor = Redactor([secret])

    told = redactor.excerpt(f"{'x ' * (at // 2)}{secret}{' y' * 100_000}", 100)

    assert len(told) <= 101
    assert told.endswith("…")
    assert not any(secret[start : start + 4] in told for start in range(len(secret) - 4))


def test_a_text_that_is_short_enough_is_reported_whole() -> None:
    assert Redactor(["hunter22"]).excerpt("a hunter22", 100) == f"a {MASK}"


def test_of_a_long_text_only_the_beginning_is_looked_at() -> None:
    secrets = [f"secret-number-{number}" for number in range(3)]

    told = Redactor(secrets).excerpt(" ".join([*secrets, "words " * 100_000]), 50)

    assert told == f"{MASK} {MASK} {MASK} wo…"
