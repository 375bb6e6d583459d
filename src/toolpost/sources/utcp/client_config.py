"""A client's configuration as the format's own client reads it: manuals to find, and variables for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.auth.env_file import parse_env
from toolpost.contracts.errors import ConfigError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.utcp.content_calls import located, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ClientConfig(NamedTuple):
    """The templates of manuals, what their variables may be, the first that has one first, and the files of those."""

    templates: list[dict[str, Any]]
    variables: tuple[Mapping[str, Any], ...]
    files: tuple[Path, ...]

    def __repr__(self) -> str:
        return f"ClientConfig({len(self.templates)} manuals)"


async def client_config(data: Mapping[str, Any], folder: Path | None, shown: str) -> ClientConfig:
    """Read a configuration; files of variables are found from its own folder."""
    templates = data.get("manual_call_templates")
    if not is_array(templates) or not templates or not all(map(_is_template, templates)):
        raise ConfigError(f"{shown}: manual_call_templates is a list of call templates, each with call_template_type")
    given = data.get("variables")
    loaders = data.get("load_variables_from")
    files = tuple(_env_file(loader, folder, shown) for loader in (loaders if is_array(loaders) else ()))
    loaded = [parse_env(await read_text(file)) for file in files]
    return ClientConfig(templates, (given if is_object(given) else {}, *loaded), files)


def _is_template(item: Any) -> bool:
    return is_object(item) and isinstance(item.get("call_template_type"), str)


def _env_file(loader: Any, folder: Path | None, shown: str) -> Path:
    if not is_object(loader) or loader.get("variable_loader_type") != "dotenv":
        raise ConfigError(f"{shown}: load_variables_from knows variable_loader_type dotenv and no other")
    return located(str(loader.get("env_file_path") or ".env"), folder)
