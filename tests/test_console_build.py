"""The console in the distributions: its packages, their licences, and a wheel with and without it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tools.build_hook import add_console
from tools.console_budget import LIMIT, first_load
from tools.console_packages import LOCK, ROOT, add_to_sbom, licensed_packages, shipped_packages

STATIC = "src/toolpost/console/static"
CARD = ROOT / "packages/approval-card"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources in which nothing is built, whatever the environment of the tests requires of a build."""
    monkeypatch.delenv("TOOLPOST_CONSOLE", raising=False)
    (tmp_path / "console").mkdir()
    shutil.copy(LOCK, tmp_path / "console")
    return tmp_path


@pytest.fixture
def no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def build(root: Path) -> tuple[list[str], list[str]]:
    """What the hook adds to a wheel, and its warnings."""
    build_data: dict[str, Any] = {"artifacts": []}
    warnings: list[str] = []
    add_console(root, build_data, warnings.append)
    return build_data["artifacts"], warnings


@pytest.mark.req("WEB-16")
def test_the_file_of_licences_has_each_package_that_ships() -> None:
    assert licensed_packages() == [package.title for package in shipped_packages()]


def test_the_font_is_among_the_licences() -> None:
    assert any(package.license == "OFL-1.1" for package in shipped_packages())


@pytest.mark.parametrize("lock", [LOCK, CARD / "package-lock.json"], ids=["console", "card"])
def test_the_lock_has_hashes_and_no_download_addresses(lock: Path) -> None:
    packages = {path: entry for path, entry in json.loads(lock.read_text())["packages"].items() if path}

    assert packages
    assert [path for path, entry in packages.items() if "integrity" not in entry] == []
    assert [path for path, entry in packages.items() if "resolved" in entry] == []
    assert [path for path, entry in packages.items() if entry.get("hasInstallScript")] == []


def declared(folder: Path) -> dict[str, str]:
    """The versions that a package asks for."""
    package = json.loads((folder / "package.json").read_text())
    return {**package["dependencies"], **package["devDependencies"]}


def test_versions_are_exact() -> None:
    assert all(version[0].isdigit() for version in declared(ROOT / "console").values())


def test_the_card_has_the_versions_of_the_console() -> None:
    assert declared(CARD).items() <= declared(ROOT / "console").items()


def test_an_sbom_gets_each_package_that_ships(tmp_path: Path) -> None:
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [{"name": "toolpost"}]}))
    add_to_sbom(sbom)
    components = json.loads(sbom.read_text())["components"]

    assert [one["name"] for one in components] == ["toolpost", *(package.name for package in shipped_packages())]
    assert "pkg:npm/%40base-ui/react@1.9.0" in {one.get("purl") for one in components}


def test_a_wheel_has_what_was_built(clone: Path, no_node: None) -> None:
    (clone / STATIC).mkdir(parents=True)
    (clone / STATIC / "index.html").touch()

    assert build(clone) == ([f"/{STATIC}"], [])


@pytest.mark.req("WEB-16")
def test_without_node_a_wheel_leaves_the_console_out_and_says_so(clone: Path, no_node: None) -> None:
    added, warnings = build(clone)

    assert added == []
    assert "this wheel has no console: run `make console` first" in warnings[0]


def test_a_wheel_that_requires_the_console_fails_without_it(
    clone: Path, no_node: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLPOST_CONSOLE", "require")

    with pytest.raises(RuntimeError, match="the console is not built: run `make console`"):
        build(clone)


def test_a_wheel_can_leave_the_console_out(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_CONSOLE", "skip")
    (clone / STATIC).mkdir(parents=True)
    (clone / STATIC / "index.html").touch()

    assert build(clone) == ([], [])


def test_another_value_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_CONSOLE", "yes")

    with pytest.raises(ValueError, match="must be auto, skip or require"):
        build(clone)


@pytest.mark.req("WEB-17")
def test_the_first_load_of_a_page_is_at_most_300_kb() -> None:
    if not (ROOT / STATIC / "index.html").is_file():
        pytest.skip("NOT TESTED: the console is not built; run: make console")
    assert sum(file.size for file in first_load()) <= LIMIT
