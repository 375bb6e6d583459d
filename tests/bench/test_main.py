import json
from pathlib import Path

import pytest

from bench.__main__ import keep
from bench.core.figures import Column, Figure, Target

pytestmark = pytest.mark.slow


def test_a_result_is_kept_as_a_json_document(tmp_path: Path) -> None:
    figure = Figure(
        key="k",
        title="t",
        columns=(Column("name", "n"),),
        rows=[{"name": "a"}],
        targets=[Target("x", 1.0, "at most", 2.0)],
    )

    path = keep([figure], took_s=1.0, folder=tmp_path / "results")

    kept = json.loads(path.read_text())
    assert kept["figures"][0]["rows"] == [{"name": "a"}]
    assert kept["figures"][0]["targets"][0]["met"] is True
