"""The npm packages that the console ships, and their licences: `python -m tools.console_packages` writes the latter.

Shipped is what console/package-lock.json has for production. The licences are those of console/node_modules, so run it
after `npm ci`; a test compares the file with the lock.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "console/package-lock.json"
LICENSES = ROOT / "console/public/THIRD_PARTY_LICENSES"
RULE = "-" * 80
# For a package that says so and has no file: the text of https://opensource.org/license/mit.
MIT = """MIT License

Copyright (c) {author}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
INTRODUCTION = "The web console of Toolpost contains the following packages.\n"


class Package(NamedTuple):
    """A package of the lock that ships."""

    name: str
    version: str
    license: str

    @property
    def title(self) -> str:
        return f"{self.name} {self.version} ({self.license})"


def shipped_packages() -> list[Package]:
    """Return what the lock has for production, by name."""
    entries = json.loads(LOCK.read_text(encoding="utf-8"))["packages"]
    return sorted(
        Package(path.rpartition("node_modules/")[2], entry["version"], entry["license"])
        for path, entry in entries.items()
        if path and not entry.get("dev") and not entry.get("devOptional")
    )


def licensed_packages() -> list[str]:
    """Return the titles in the file of licences, in its order."""
    sections = LICENSES.read_text(encoding="utf-8").split(f"\n{RULE}\n")[1:]
    return [section.split("\n", 1)[0] for section in sections]


def sbom_components() -> list[dict[str, Any]]:
    """Return the packages as components of a CycloneDX document."""
    return [
        {
            "type": "library",
            "bom-ref": f"npm:{package.name}@{package.version}",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:npm/{quote(package.name)}@{package.version}",
            "licenses": [{"license": {"id": package.license}}],
        }
        for package in shipped_packages()
    ]


def add_to_sbom(path: Path) -> None:
    """Add the packages to a CycloneDX document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document.setdefault("components", []).extend(sbom_components())
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def licenses_text() -> str:
    """Return every package with the text of its licence."""
    sections = [f"{package.title}\n\n{_license_text(package)}\n" for package in shipped_packages()]
    return f"\n{RULE}\n".join([INTRODUCTION, *sections])


def _license_text(package: Package) -> str:
    folder = ROOT / "console/node_modules" / package.name
    found = sorted(
        path for path in folder.glob("*") if path.is_file() and path.name.lower().startswith(("licen", "copying"))
    )
    if not found and package.license == "MIT":
        author = json.loads((folder / "package.json").read_text(encoding="utf-8"))["author"]
        return MIT.format(author=author)
    if not found:
        raise SystemExit(f"{package.name} has no licence text in {folder}")
    return "\n".join(path.read_text(encoding="utf-8").strip() for path in found)


def main() -> None:
    """Write the file of licences."""
    LICENSES.parent.mkdir(exist_ok=True)
    LICENSES.write_text(licenses_text(), encoding="utf-8")
    print(f"{LICENSES.relative_to(ROOT)}: {len(shipped_packages())} packages")


if __name__ == "__main__":
    main()
