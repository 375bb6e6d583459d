"""The placeholders of other programs' configuration files, turned into what `toolpost.yaml` understands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolpost.configuration.secret_extraction import Variable, is_secret_variable, variable_name
from toolpost.schema.jsontypes import is_object

_PLACEHOLDER = re.compile(r"\$\{(?P<inside>[^}]*)\}?")
_BARE = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WITH_DEFAULT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*):-(?P<default>.*)", re.DOTALL)


class Placeholders:
    """Replaces the placeholders of one file, and remembers what there is to say about them."""

    def __init__(
        self, *, folder: Path, inputs: Mapping[str, Any], environ: Mapping[str, str], bare: bool = False
    ) -> None:
        self.notes: list[str] = []
        self.variables: list[Variable] = []
        self._inputs = inputs
        self._environ = environ
        self._bare = bare
        self._known = {
            "workspaceFolder": str(folder),
            "workspaceRoot": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": str(_home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def replaced(self, text: str, *, place: str, name: str = "") -> str:
        """The text with references as `${NAME}`; `name` is what the text is the value of, `place` where it stands."""
        whole = _BARE.fullmatch(text)
        if whole is not None and self._bare:
            return f"${{{whole['name']}}}"
        return _PLACEHOLDER.sub(lambda found: self._one(found, place, name), text)

    def _one(self, found: re.Match[str], place: str, name: str) -> str:
        inside = found["inside"] if found[0].endswith("}") else ""
        if inside in self._known:
            return self._known[inside]
        if inside.startswith("input:"):
            return self._input(inside.removeprefix("input:"), place)
        variable = inside.removeprefix("env:")
        if _NAME.fullmatch(variable):
            return f"${{{variable}}}"
        optional = _WITH_DEFAULT.fullmatch(variable)
        if optional is not None:
            return self._with_default(optional["name"], optional["default"], place, name)
        self.notes.append(f"{place}: nothing here knows what {found[0]} stands for; it is taken as it is written")
        return f"${found[0]}"

    def _input(self, id_: str, place: str) -> str:
        variable = variable_name(id_)
        about = self._inputs.get(id_)
        told = about.get("description") if is_object(about) else None
        if all(known.name != variable for known in self.variables):
            self.variables.append(Variable(name=variable, stands_for=str(told or f"the input {id_!r}")))
            self.notes.append(f"{place}: the input {id_!r}, which the editor asks for, is now the variable {variable}")
        return f"${{{variable}}}"

    def _with_default(self, variable: str, default: str, place: str, name: str) -> str:
        """A reference has no default here, so one of the two is chosen now; a secret is never written out."""
        if variable in self._environ or is_secret_variable(name) or is_secret_variable(variable):
            self.notes.append(f"{place}: {variable} must be set; its default is not taken over")
            return f"${{{variable}}}"
        self.notes.append(f"{place}: {variable} is not set, so its default is written instead of it")
        return default.replace("${", "$${")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")
