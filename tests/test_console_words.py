"""The console has words for everything that the gateway can send."""

import re
from pathlib import Path

from toolpost.contracts.events import EventCode

WORDS = Path(__file__).parents[1] / "console/src/words/shared.ts"


def test_every_type_of_event_has_words() -> None:
    block = re.search(r"^  events: \{\n(.*?)^  \},", WORDS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    assert set(re.findall(r"^    ([A-Z_]+): ", block[1], re.MULTILINE)) == {code.name for code in EventCode}
