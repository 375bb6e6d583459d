"""Limits of a run: how much it may use, and how many calls one reply may make."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from toolpost.contracts.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.chat import Usage

BudgetKind = Literal["steps", "time", "tokens", "cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run; None is no limit.

    `steps` are replies of the model, `time_s` are seconds without the waits for people, `tokens` those of prompts and
    replies together, `cost` is in US dollars.
    """

    steps: int | None = None
    time_s: float | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "time_s", "tokens", "cost"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:  # NaN too
                raise ConfigError(f"{name} of a Budget must be more than 0, not {limit!r}")

    def used_up(self, *, steps: int, seconds: float, usage: Usage) -> BudgetKind | None:
        """Return which limit is reached, if one is."""
        if self.steps is not None and steps >= self.steps:
            return "steps"
        if self.time_s is not None and seconds >= self.time_s:
            return "time"
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return "tokens"
        if self.cost is not None and (usage.cost or 0.0) >= self.cost:
            return "cost"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningHints:
    """What a model is told about planning, and held to: `max_parallel` is the most calls that one reply may make."""

    max_parallel: int | None = None

    def __post_init__(self) -> None:
        check_at_least_one("max_parallel", self.max_parallel)

    @classmethod
    def parse(cls, given: PlanningHints | Mapping[str, Any] | None) -> PlanningHints:
        """Return hints from a mapping; ConfigError names an unknown key."""
        if isinstance(given, PlanningHints):
            return given
        known = [field.name for field in fields(cls)]
        for name in given or {}:
            if name not in known:
                near = did_you_mean(name, known) or f"there are: {', '.join(known)}"
                raise ConfigError(f"planning_hints: there is no hint {name!r}; {near}")
        return cls(**(given or {}))


def check_at_least_one(name: str, value: int | None) -> None:
    """Raise ConfigError for a limit below one."""
    if value is not None and value < 1:
        raise ConfigError(f"{name} must be at least 1, not {value}")
