"""Options of workflow sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Annotated

from pydantic import Field, field_validator

from toolpost.contracts.config_model import ConfigModel

Percent = Annotated[int, Field(ge=0, le=100)]


class WorkflowOptions(ConfigModel):
    """Options of workflows: other names of versions.

    An alias is one version, such as `report_v2`, or several with the percentage of calls that each gets.
    """

    aliases: dict[str, str | dict[str, Percent]] = Field(
        default_factory=dict[str, "str | dict[str, int]"],
        description="Names for versions: one, such as report_v2, or several with their percentage of the calls",
    )

    @field_validator("aliases")
    @classmethod
    def _percentages_are_whole(cls, aliases: dict[str, str | dict[str, int]]) -> dict[str, str | dict[str, int]]:
        for name, versions in aliases.items():
            if isinstance(versions, dict) and sum(versions.values()) != 100:
                raise ValueError(f"the percentages of {name} add up to {sum(versions.values())}, not to 100")
        return aliases
