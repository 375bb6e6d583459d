"""What stores hand out."""

import json

from toolpost.contracts.storage import ArtifactRef


def test_an_artifact_is_reported_as_plain_data() -> None:
    ref = ArtifactRef(
        id="art_1",
        sha256="ab",
        size=3,
        media_type="text/plain",
        name="",
        tenant="acme",
        user="ann",
        run_id="run_1",
        call_id="call_1",
        tool_name="make",
        created_at=1.0,
    )

    assert json.loads(json.dumps(ref.to_dict()))["size"] == 3
    assert ArtifactRef(**ref.to_dict()) == ref
