"""Which files a tool may touch."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from toolpost import Settings
from toolpost.contracts.principal import Principal
from toolpost.policy.paths import AllowedPaths, is_path_allowed
from toolpost.stores.path_segments import path_segment


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


ANN, EVE, ME = Principal("acme", "ann"), Principal("evil", "eve"), Principal("local", "me")


def test_other_tenants_have_a_folder_of_their_own() -> None:
    paths = AllowedPaths(["/srv/data", "/srv/more"], tenants="/srv/tenants")

    assert paths.of(ME) == ("/srv/data", "/srv/more")
    assert paths.of(ANN) == ("/srv/tenants/acme",)
    assert paths.of(EVE) == ("/srv/tenants/evil",)


def test_a_template_says_whose_folder_a_path_is() -> None:
    paths = AllowedPaths(["/srv/{tenant}/{user}", "/srv/shared"])

    assert paths.of(ANN) == ("/srv/acme/ann", "/srv/shared")
    assert paths.of(ME) == ("/srv/local/me", "/srv/shared")


def test_what_allows_nothing_or_everything_does_so_for_every_tenant() -> None:
    assert [AllowedPaths([]).of(who) for who in (ME, ANN)] == [(), ()]
    assert [AllowedPaths(None).of(who) for who in (ME, ANN)] == [None, None]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("files/{tenat}", "{tenat} in 'files/{tenat}' is unknown"),
        ("files/{tenant}-{user}", "must be a whole segment"),
        ("files/x{tenant}", "must be a whole segment"),
        ("files/{user}", "{user} without {tenant}"),
    ],
)
def test_a_template_that_would_mix_users_is_refused(path: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"tools": {"allowedPaths": [path]}})
    assert says in str(refused.value)


NAMES = ["acme", "Acme", "ACME", "a/b", "a%2fb", "a%2Fb", "..", ".", "a.b", "con", "Con", "%63on", "~", "é", "e\u0301"]
NAMES += ["a\\b", "a b", "a\nb", "x" * 300, "x" * 301, "X" * 300, "é" * 200]


def test_a_name_is_one_segment_and_no_two_names_share_one() -> None:
    segments = [path_segment(name) for name in NAMES]

    assert len({segment.casefold() for segment in segments}) == len(NAMES)
    assert all(re.fullmatch(r"[a-z0-9_%A-F~-]{1,200}", segment) for segment in segments)
    assert path_segment("acme-2_x") == "acme-2_x"
