"""Where there is no browser, the tests that need one say so."""

from pathlib import Path

import pytest

from tests import parts

pytestmark = pytest.mark.programs


def test_a_system_without_a_browser_is_reported_with_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(parts.PartMissingError, match=r"chromium is not installed; run: apt-get install .* chromium$"):
        parts.chromium(str(tmp_path))
