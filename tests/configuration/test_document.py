"""A configuration file as plain data."""

from pathlib import Path
from typing import Any

import pytest

from toolpost.configuration.document import MAX_BYTES, ConfigDocument, read_document
from toolpost.contracts.errors import ConfigError


def read(tmp_path: Path, text: str | bytes, **environ: str) -> ConfigDocument:
    file = tmp_path / "toolpost.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(file, shown="toolpost.yaml", environ=environ)


@pytest.mark.req("PCFG-06")
@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("$${A}", "${A}"),
        ("$${A} and ${A}", "${A} and one"),
        ("$A costs 5$", "$A costs 5$"),
    ],
)
def test_variables_are_replaced_and_an_escape_is_not(tmp_path: Path, written: str, read_as: str) -> None:
    assert read(tmp_path, f"key: '{written}'", A="one", B="two").data == {"key": read_as}


@pytest.mark.req("PCFG-06")
def test_variables_are_replaced_at_any_depth_but_not_in_keys(tmp_path: Path) -> None:
    text = "list: [a, {deep: '${A}'}]\n'${A}': 5\n"

    assert read(tmp_path, text, A="one").data == {"list": ["a", {"deep": "one"}], "${A}": 5}


@pytest.mark.req("PCFG-06")
def test_a_value_is_not_read_for_variables_again(tmp_path: Path) -> None:
    assert read(tmp_path, "key: ${A}", A="${B}", B="two").data == {"key": "${B}"}


@pytest.mark.req("PCFG-06")
def test_every_missing_variable_is_named_with_its_place(tmp_path: Path) -> None:
    text = "tools: {webSearch: {apiKey: '${GITHUB_TOKEN}'}}\nother: ${NOT_THERE}\n"

    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)

    assert "GITHUB_TOKEN (at tools.webSearch.apiKey), NOT_THERE (at other)" in str(caught.value)


@pytest.mark.req("PCFG-06")
def test_the_missing_variables_of_a_source_are_named_with_their_place(tmp_path: Path) -> None:
    document = read(tmp_path, "sources:\n- {name: a, env: {TOKEN: '${GITHUB_TOKEN}'}, cwd: '${NOT_THERE}'}\n")

    [(entry, told)] = document.unset.items()
    assert entry == ("sources", 0)
    assert "GITHUB_TOKEN (at sources[0].env.TOKEN), NOT_THERE (at sources[0].cwd)" in told


@pytest.mark.parametrize("written", ["${}", "${1A}", "${A:-x}", "${A", "${a b}"])
def test_a_dollar_and_brace_that_is_no_variable_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match=r"key has a `\$\{` that is not a variable; write \$\{NAME\}, or \$\$\{"):
        read(tmp_path, f"key: '{written}'", A="one")


def test_what_came_from_variables_is_secret_but_not_places_and_short_words(tmp_path: Path) -> None:
    text = "token: Bearer ${TOKEN}\ndata_dir: ${HOME}/x\ntools: {allowedPaths: ['${HOME}']}\ndebug: ${DEBUG}\n"

    document = read(tmp_path, text, TOKEN="s3cret-token", HOME="/home/ann", DEBUG="1")

    assert document.secrets == {"s3cret-token"}
    assert "s3cret-token" not in repr(document)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).data == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", r"toolpost.yaml must contain keys and values .* not a list"),
        ("hello", "not text"),
        ("policy: standard\nsources: []\npolicy: audit\n", r"line 3: key 'policy' is given twice \(first in line 1\)"),
        ("tools: {timeout: 1, timeout: 2}", "line 1: key 'timeout' is given twice"),
        ("a: 1\nb: [1, 2\n", "toolpost.yaml, line 3: "),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: could not determine a constructor for the tag"),
        ("a: 1\n---\nb: 2\n", "line 2: but found another document"),
        ("1: one\n", "key 1 is a number, not text; put it in quotes"),
        ("tools: {true: 1}\n", "key True below 'tools' is true or false, not text"),
        ("a: 2024-99-99\n", "not valid YAML"),
        (b"a: \xff\xfe\n", r"is not UTF-8 text \(byte 3\)"),
        ("a: \x00\n", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_mistake_in_the_file_is_reported_without_quoting_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "token: s3cret-token\nother: [s3cret-token: }\n")

    assert "s3cret-token" not in str(caught.value)


def test_merge_keys_are_read(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n"

    assert read(tmp_path, text).data["more"] == {"a": 1, "b": 3}


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]

    with pytest.raises(ConfigError, match="more than 100000 values; its aliases multiply"):
        read(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: " + "[" * 100 + "]" * 100, "a: " + "[" * 500 + "]" * 500])
def test_endless_depth_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="nested more than 64 deep"):
        read(tmp_path, text)


def test_a_file_that_is_no_configuration_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is larger than"):
        read(tmp_path, b" " * (MAX_BYTES + 1))


@pytest.mark.parametrize(("make", "message"), [(None, "does not exist"), (Path.mkdir, "cannot be read")])
def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, make: Any, message: str) -> None:
    path = tmp_path / "other.yaml"
    if make is not None:
        make(path)

    with pytest.raises(ConfigError, match=message):
        read_document(path, shown="other.yaml", environ={})
