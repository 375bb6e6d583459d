"""Options of sources that run command lines."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Literal

from pydantic import Field

from toolpost.contracts.config import DeclaredTool
from toolpost.contracts.config_model import ConfigModel


class CliTool(DeclaredTool):
    """A command: `args` follow the source's `connection`, with `{name}` where an argument goes."""

    args: list[str] = Field(default_factory=list[str], description="Words of the command, with {name} for arguments")
    stdin: str | None = Field(default=None, description="What is written to it, with {name} for arguments")
    output: Literal["auto", "json", "lines", "text", "bytes"] = "auto"
    success_codes: list[int] = Field(default_factory=lambda: [0], min_length=1)


class CliOptions(ConfigModel):
    """Options of command lines; a tool takes missing parts from its description in `manual`."""

    tools: dict[str, CliTool] = Field(default_factory=dict[str, CliTool])
    manual: str | None = Field(
        default=None, min_length=1, description="The path or the address of a UTCP manual that describes the commands"
    )
    allowed_communication_protocols: list[str] | None = Field(
        default=None, description="Kinds of call templates that are accepted; the manual's own kind by default"
    )
    variables: dict[str, str] = Field(default_factory=dict[str, str], repr=False, description="Variables of the manual")
    pass_env: list[str] = Field(default_factory=list[str], description="Variables of this process to pass on")
    max_output_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
