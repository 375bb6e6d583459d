"""YAML as plain JSON data, with the traps that real documents set."""

import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import parts
from tests.specs import real_documents
from toolpost.sources.openapi.yaml_text import MAX_DEPTH, YamlError, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("on", "on"),
        ("NO", "NO"),
        ("y", "y"),
        ("2024-01-31", "2024-01-31"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0644", "0644"),
        ("1e999", "1e999"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("=", "="),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!strange x", "x"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: Any) -> None:
    loaded = load_yaml(f"key: {text}")["key"]

    assert (loaded, type(loaded)) == (value, type(value))


def test_keys_are_always_text() -> None:
    assert load_yaml("200: a\non: b\nnull: c\n1.0: d") == {"200": "a", "on": "b", "null": "c", "1.0": "d"}


def test_anchors_are_repeated_and_merged_and_own_keys_win() -> None:
    text = """
    base: &base {a: 1, b: 2}
    other: &other {b: 3, c: 4}
    one: {<<: *base, b: 9}
    two: {<<: [*base, *other]}
    same: [*base, *base]
    """

    loaded = load_yaml(text)

    assert loaded["one"] == {"a": 1, "b": 9}
    assert loaded["two"] == {"a": 1, "b": 2, "c": 4}
    assert loaded["same"][0] is loaded["same"][1]


def test_anchors_that_multiply_are_refused_at_once() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))

    with pytest.raises(YamlError, match="contains more than 3,000,000 values"):
        load_yaml(f"l0: &l0 [x, x]\n{levels}")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: *nowhere"])
def test_an_anchor_within_itself_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="names nothing"):
        load_yaml(text)


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(YamlError, match=f"deeper than {MAX_DEPTH}"):
        load_yaml("[" * 900 + "]" * 900)


@pytest.mark.parametrize("text", ["a: >-\n  \tone\n  two\n", "a: |\n  one\n\t\n  two\n", "a: foo\n\t bar\n"])
def test_tabs_where_one_parser_wants_spaces_are_read_all_the_same(text: str) -> None:
    assert load_yaml(text)["a"].split()[0] in ("one", "foo")


ODD_TEXTS = [
    "a: one\u2028two\nb\u2029c: 'x\u2029y'\n",
    "a: |\n  one\u2028two\n  three\n",
    "# a\u2028comment\na: 1\n",
    "a: x\x85y\nb: z\x80\x9fw\n",
    "a: x\x01y\x7f\n",
    "a: \ue000\u2028\ue001\n",
    "a: |\n  \tone\n  two\n",
    "a: |\n    \t one\n    two\nb: 1\n",
    "a:\n  - b: |-\n      \tone\n      two\n    c:\t1\n",
    "a: |\n  \n  \tone\n  two\n",
    "a: |2\n  \tone\n",
]


@pytest.mark.programs
def test_odd_characters_are_the_text_that_another_parser_reads() -> None:
    program = "const t=JSON.parse(require('fs').readFileSync(0));const y=require(process.argv[1]);"
    arguments = [str(parts.node24()), "-e", f"{program}console.log(JSON.stringify(t.map(s=>y.parse(s))))"]
    library = str(parts.found("node_modules/yaml/package.json").parent)
    answer = subprocess.run(
        [*arguments, library], input=json.dumps(ODD_TEXTS), capture_output=True, check=True, text=True
    )

    assert [load_yaml(text) for text in ODD_TEXTS] == json.loads(answer.stdout)


def test_invalid_yaml_is_reported_with_its_line() -> None:
    with pytest.raises(YamlError, match=r"line 2: mapping values are not allowed"):
        load_yaml("a: b\nc: d: e\n")


def test_a_key_that_is_a_list_is_refused() -> None:
    with pytest.raises(YamlError, match="a key must be a string"):
        load_yaml("? [a, b]\n: c")


def test_garbage_never_gets_past_as_anything_but_trouble() -> None:
    chance = random.Random(7)
    letters = "{}[]&*<<:!|>-'\"\\%@`#, \n\tab1\x00é\ud7ff"
    for _ in range(2000):
        text = "".join(chance.choices(letters, k=chance.randint(1, 40)))
        try:
            load_yaml(text)
        except YamlError:
            continue


@pytest.mark.parametrize(
    "path", [one for one in real_documents() if one.id and "jira" in one.id] or real_documents()[:1]
)
@pytest.mark.slow
def test_the_words_of_a_real_document_are_those_that_stand_in_it(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).decode()

    # The parser's own plainest loader takes every scalar as text.
    assert _as_text(load_yaml(text)) == _as_text(yaml.load(text, Loader=yaml.CBaseLoader))


def _as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return value if isinstance(value, str) and not _reads_otherwise(value) else "scalar"


def _reads_otherwise(text: str) -> bool:
    return (
        text in ("", "~") or text.lower() in ("true", "false", "null") or text.lstrip("+-.").replace(".", "").isdigit()
    )


def test_the_escape_character_is_text_in_a_document() -> None:
    assert load_yaml("a: \ufdd0\u2028\ufdd00085\nb: '\ufdd02028'") == {"a": "\ufdd0\u2028\ufdd00085", "b": "\ufdd02028"}


def test_private_characters_of_a_document_are_its_own() -> None:
    everything = "".join(map(chr, range(0xE000, 0xF900)))

    assert load_yaml('a: "\\uE000\u2028"') == {"a": "\ue000\u2028"}
    assert load_yaml(f"a: {everything}\nb: |\n  \tx\n  y\n")["a"] == everything
