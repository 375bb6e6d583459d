"""The tests of all parts of a store."""

from toolpost.testing.stores.artifacts import ArtifactTests
from toolpost.testing.stores.base import StoreFactory
from toolpost.testing.stores.calls import CallRecordTests
from toolpost.testing.stores.erasure import ErasureTests
from toolpost.testing.stores.events import EventLogTests
from toolpost.testing.stores.jobs import JobTests
from toolpost.testing.stores.limits import LimitTests
from toolpost.testing.stores.metrics import MetricTests
from toolpost.testing.stores.pending import PendingTests
from toolpost.testing.stores.pruning import PruningTests
from toolpost.testing.stores.sessions import SessionTests
from toolpost.testing.stores.shared import SharedStoreTests
from toolpost.testing.stores.state import StateTests
from toolpost.testing.stores.status import StatusTests
from toolpost.testing.stores.tokens import TokenTests
from toolpost.testing.stores.waits import WaitTests

__all__ = ["SharedStoreTests", "StoreFactory", "StoreTests"]


class StoreTests(
    EventLogTests,
    CallRecordTests,
    PendingTests,
    ArtifactTests,
    TokenTests,
    StateTests,
    SessionTests,
    WaitTests,
    PruningTests,
    ErasureTests,
    MetricTests,
    StatusTests,
    LimitTests,
    JobTests,
):
    """The tests of a store that one process has open."""
