"""The manifest and the tests agree, both ways."""

import tomllib
from pathlib import Path

import pytest

from tests import requirements


def test_the_manifest_holds_every_requirement_with_a_sentence_and_a_status() -> None:
    items = requirements.load()

    assert len(items) >= 438
    assert [id_ for id_, item in items.items() if not item.text.strip()] == []
    assert {item.status for item in items.values()} <= {"planned", "proved"}


def test_no_test_names_an_id_that_the_manifest_does_not_have() -> None:
    items = requirements.load()

    unknown = {id_: tests for id_, tests in requirements.carried().items() if id_ not in items}

    assert unknown == {}


def test_every_proved_id_is_carried_by_a_test() -> None:
    carried = requirements.carried()

    unproved = [id_ for id_, item in requirements.load().items() if item.status == "proved" and id_ not in carried]

    assert unproved == [], "set them back to planned, or write the tests"


def test_no_id_that_a_test_carries_is_still_planned() -> None:
    carried = requirements.carried()

    planned = [id_ for id_, item in requirements.load().items() if item.status == "planned" and id_ in carried]

    assert planned == [], "run: python -m tools.mark_proved"


def test_no_test_claims_to_prove_more_than_three_ids() -> None:
    assert requirements.crowded() == {}, "split it, or leave each id to the test that fails without what it says"


def test_ids_of_a_test_its_parameters_and_its_module_count_together(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "pytestmark = pytest.mark.req('A-01')\n"
        "@pytest.mark.req('A-02')\n"
        "@pytest.mark.parametrize('x', [pytest.param(n, marks=pytest.mark.req('A-03', 'A-04')) for n in (1, 2)])\n"
        "def test_many(x): ...\n"
        "@pytest.mark.req('A-01', 'A-02', 'A-03')\n"
        "def test_few(): ...\n"
    )

    assert requirements.crowded(tmp_path) == {"test_sample.py::test_many": ["A-01", "A-02", "A-03", "A-04"]}


def test_marks_are_found_on_tests_on_classes_on_modules_and_on_parameters(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "pytestmark = [pytest.mark.req('A-01')]\n"
        "@pytest.mark.req('A-02', 'A-03')\n"
        "async def test_one(): ...\n"
        "@pytest.mark.req('A-04')\n"
        "class TestMany: ...\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.req('A-05'))])\n"
        "def test_two(x): ...\n"
        "@pytest.mark.req('A-06')\n"
        "def helper(): ...\n"
    )

    assert requirements.carried(tmp_path) == {
        "A-01": ["test_sample.py::pytestmark"],
        "A-02": ["test_sample.py::test_one"],
        "A-03": ["test_sample.py::test_one"],
        "A-04": ["test_sample.py::TestMany"],
        "A-05": ["test_sample.py::test_two"],
    }


def test_a_test_that_was_skipped_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "@pytest.mark.req('A-01')\ndef test_one(): ...\n"
        "@pytest.mark.req('A-01', 'A-02')\ndef test_two(): ...\n"
        "@pytest.mark.req('A-03')\nclass TestMany: ...\n"
    )
    node_ids = ["tests/test_sample.py::test_two[x::y]", "tests/test_sample.py::TestMany::test_it"]

    assert requirements.only_skipped(["tests/test_sample.py::test_one"], node_ids, tmp_path) == ["A-02", "A-03"]
    assert requirements.only_skipped(node_ids, node_ids, tmp_path) == []


@pytest.mark.req("TEST-03")
def test_the_suite_fails_where_less_than_nine_tenths_of_the_code_were_run() -> None:
    root = requirements.TESTS.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    commands = (root / "Makefile").read_text(encoding="utf-8")

    assert project["tool"]["coverage"]["report"]["fail_under"] >= 90
    assert "--cov=" in commands
    assert "coverage json" in commands
    assert "tools.branch_gate coverage.json 90" in commands


def test_an_id_that_is_computed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("@pytest.mark.req(f'A-{n}')\ndef test_one(): ...\n")

    with pytest.raises(ValueError, match=r"test_sample\.py:1: a requirement id is written out"):
        requirements.carried(tmp_path)
