"""Which files a tool may touch."""

from pathlib import Path

import pytest

from toolpost.policy.paths import is_path_allowed


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep" / "er").mkdir(parents=True)
    (tmp_path / "database").mkdir()
    return folder


@pytest.mark.req("PSEC-01", "PSEC-02")
@pytest.mark.parametrize(
    "inside", [".", "a.txt", "deep/er/b.txt", "deep/../a.txt", "not/yet/there.txt", "deep/er/../../c.txt"]
)
def test_a_folder_is_allowed_with_all_that_lies_below(data: Path, inside: str) -> None:
    assert is_path_allowed(data / inside, [str(data)])


@pytest.mark.req("PSEC-02")
@pytest.mark.parametrize("outside", ["..", "../a.txt", "deep/../../a.txt", "../database", "../data.txt", "/etc/passwd"])
def test_what_lies_beside_or_above_is_not_allowed(data: Path, outside: str) -> None:
    assert not is_path_allowed(data / outside, [str(data)])


@pytest.mark.req("PSEC-02", "DEF-11")
def test_a_symlink_is_judged_by_where_it_leads(data: Path, tmp_path: Path) -> None:
    (data / "way_out").symlink_to(tmp_path)
    (tmp_path / "way_in").symlink_to(data)

    assert not is_path_allowed(data / "way_out" / "secret.txt", [str(data)])
    assert is_path_allowed(tmp_path / "way_in" / "a.txt", [str(data)])


@pytest.mark.req("DEF-11")
def test_a_symlink_that_leads_nowhere_yet_does_not_lead_out(data: Path, tmp_path: Path) -> None:
    (data / "later").symlink_to(tmp_path / "not_there_yet")

    assert not is_path_allowed(data / "later", [str(data)])


@pytest.mark.req("DEF-11")
def test_dots_after_a_symlink_are_counted_from_where_it_leads(data: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "child").mkdir(parents=True)
    (data / "link").symlink_to(tmp_path / "other" / "child")

    assert not is_path_allowed(f"{data}/link/../a.txt", [str(data)])


@pytest.mark.req("DEF-11")
def test_an_allowed_folder_may_itself_be_a_symlink(data: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(data)

    assert is_path_allowed(data / "a.txt", [str(tmp_path / "alias")])


def test_a_relative_path_starts_in_the_working_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)

    assert is_path_allowed("deep/a.txt", ["."])
    assert not is_path_allowed("../a.txt", ["."])


def test_no_rule_allows_everything_and_an_empty_rule_nothing(data: Path) -> None:
    assert is_path_allowed("/etc/passwd", None)
    assert not is_path_allowed(data, [])


def test_any_of_several_folders_will_do(data: Path, tmp_path: Path) -> None:
    assert is_path_allowed(tmp_path / "database" / "x", [str(data), str(tmp_path / "database")])


def test_the_root_allows_everything(data: Path) -> None:
    assert is_path_allowed(data / "a.txt", ["/"])


def test_a_path_that_no_file_can_have_is_not_allowed(data: Path) -> None:
    assert not is_path_allowed(f"{data}/a\0b", [str(data)])
