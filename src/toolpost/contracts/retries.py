"""Retries of failed calls."""

# Real annotations, as in `config_model`.
from pydantic import Field

from toolpost.contracts.config_model import ConfigModel


class RetryPolicy(ConfigModel):
    """Number and delay of retries of a failed call, if a retry is safe."""

    max_attempts: int = Field(default=3, ge=1, le=10)
    wait_exponential_min_s: float = Field(default=0.1, ge=0.01)
    wait_exponential_max_s: float = Field(default=5.0, ge=0.1)
    retry_on_status: list[int] = Field(default_factory=lambda: [429, 500, 502, 503, 504])
