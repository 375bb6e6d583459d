"""What a worker reads from queues: JSON, never pickle."""

import base64
import os
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from dbos._serialization import DefaultSerializer
from sqlalchemy.exc import OperationalError, ProgrammingError

from toolpost.runtime.dbos_consumer import JsonSerializer, describe_launch_failure, forget_variables, refuse_pickle


@pytest.mark.req("SCALE-07")
def test_pickled_entries_are_refused_also_if_their_row_names_pickle() -> None:
    pickled = base64.b64encode(pickle.dumps({"args": (1,), "kwargs": {}})).decode()
    serialize, deserialize = DefaultSerializer.serialize, DefaultSerializer.deserialize
    try:
        refuse_pickle()
        with pytest.raises(ValueError, match="which toolpost never reads"):
            DefaultSerializer().deserialize(pickled)
        with pytest.raises(ValueError, match="which toolpost never reads"):
            DefaultSerializer().serialize({})
    finally:
        DefaultSerializer.serialize, DefaultSerializer.deserialize = serialize, deserialize  # type: ignore[method-assign]


@pytest.mark.parametrize("value", [{"args": ["run:1:0"], "kwargs": {}}, None, datetime(2026, 11, 19, tzinfo=UTC)])
def test_values_that_dbos_stores_are_json(value: Any) -> None:
    serializer = JsonSerializer()

    assert serializer.deserialize(serializer.serialize(value)) == value


def test_an_exception_is_stored_without_its_text_and_other_objects_are_refused() -> None:
    serializer = JsonSerializer()
    stored = serializer.deserialize(serializer.serialize(KeyError("gone")))

    assert isinstance(stored, RuntimeError)
    assert str(stored) == "KeyError"
    with pytest.raises(TypeError, match="object is not stored in a queue"):
        serializer.serialize(object())


@pytest.mark.req("SCALE-07")
def test_variables_of_dbos_are_removed_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DBOS__CONDUCTOR_KEY", "secret-canary")
    monkeypatch.setenv("DBOS__CLOUD", "true")
    forget_variables()

    assert not [name for name in os.environ if name.startswith("DBOS_")]
    assert "DBOS__CONDUCTOR_KEY is ignored" in caplog.text
    assert "secret-canary" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (OperationalError, "start the worker again when the server accepts connections"),
        (ProgrammingError, "its user needs the right to create this schema"),
    ],
)
def test_a_worker_that_cannot_begin_says_what_to_do(kind: type[OperationalError], remedy: str) -> None:
    told = describe_launch_failure(kind("CREATE SCHEMA", None, Exception("refused\nwith more lines")))

    assert remedy in told
    assert "more lines" not in told
