"""What a test needs of an agent framework: run an agent with a scripted model, look at what came, and resume."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from toolpost import Toolbox


class Call(NamedTuple):
    """A call that the scripted model makes; arguments that are a string are sent as they are."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str = {}


class Result(NamedTuple):
    """The answer to a call, as the framework shows it to the model, and the data beside it."""

    text: str
    failed: bool
    data: Mapping[str, Any] | None = None


class Run(NamedTuple):
    """A run so far: the results by call id, the ids of the actions it waits for, and the last text of the model."""

    results: Mapping[str, Result]
    waiting: Sequence[str]
    answer: str | None
    state: Any


class Driver(Protocol):
    """Runs agents of one framework."""

    has_data: bool
    """Whether the framework keeps data beside a result, for the application."""

    def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Coroutine[Any, Any, Run]:
        """Run an agent whose model makes these calls in one message, and then says `done`."""
        ...

    def resume(self, run: Run) -> Coroutine[Any, Any, Run]:
        """Resume a run that waits."""
        ...
