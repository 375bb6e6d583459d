"""Which files are not imported, because `-m` leaves out all of their tests."""

from pathlib import Path

import pytest

from tests.left_out import is_left_out, unwanted_marks

UNWANTED = frozenset({"programs", "slow"})


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("", set[str]()),
        ("not slow", {"slow"}),
        ("not programs and not slow and not waits", {"programs", "slow", "waits"}),
        ("programs", set[str]()),
        ("not slow or programs", set[str]()),
        ("not (slow or programs)", set[str]()),
    ],
)
def test_only_what_is_ruled_out_for_certain_counts(expression: str, marks: set[str]) -> None:
    assert unwanted_marks(expression) == marks


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("pytestmark = pytest.mark.programs  # why\n", True),
        ('pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]\n', True),
        ("pytestmark = [\n    pytest.mark.req('A-01'),\n    pytest.mark.programs,\n]\n\n\ndef test_it(): ...\n", True),
        ("pytestmark = pytest.mark.req('A-01')\n\n\n@pytest.mark.slow\ndef test_it(): ...\n", False),
        ("@pytest.mark.slow\ndef test_it(): ...\n", False),
        ("    pytestmark = pytest.mark.slow\n", False),
        ("pytestmark = pytest.mark.slow_motion\n", False),
    ],
)
def test_a_file_is_left_out_by_a_mark_of_all_its_tests(tmp_path: Path, text: str, left_out: bool) -> None:
    file = tmp_path / "test_sample.py"
    file.write_text(f"import pytest\n\n{text}")

    assert is_left_out(file, UNWANTED) is left_out


def test_a_folder_is_left_out_when_all_its_tests_are(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert not is_left_out(tmp_path, UNWANTED)
    for place in ("test_one.py", "below/test_two.py"):
        (tmp_path / place).write_text("pytestmark = pytest.mark.slow\n")
    assert is_left_out(tmp_path, UNWANTED)

    (tmp_path / "below" / "test_three.py").write_text("def test_it(): ...\n")
    assert not is_left_out(tmp_path, UNWANTED)
