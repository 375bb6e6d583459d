"""A tool that is set aside: its definition is not the one that a person agreed to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolpost.catalog.lock import differences
from toolpost.contracts.questions import Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.catalog.lock import Pin
    from toolpost.contracts.spec import ToolSpec

DEFINITION = "definition"
_ANYTHING = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a tool is set aside: `before` is what was pinned (None: nothing), `after` what its source says now.

    `accept` pins it as it is now and lets its calls run again; `is_settled` says whether somebody has done so
    elsewhere meanwhile, and then lets them run here.
    """

    name: str
    before: Pin | None
    after: Pin
    accept: Callable[[], None]
    is_settled: Callable[[], bool]

    @property
    def reason(self) -> str:
        """What is not as it was, in words of ours alone: models read it."""
        if self.before is None:
            return "it is new, and nobody has agreed to it"
        changed = [change.part for change in differences(self.before, self.after)]
        return f"its {', '.join(changed)} changed since it was agreed to"

    def stub(self, spec: ToolSpec) -> ToolSpec:
        """The record that is shown meanwhile: of the new definition it has only what was agreed to before."""
        before = self.before
        same_input = before is not None and before.input_schema == self.after.input_schema
        told = f"Set aside: {self.reason}. A call waits for a person."
        return replace(
            spec,
            description=told if before is None else f"{before.description}\n\n{told}".strip(),
            input_schema=spec.input_schema if same_input else _ANYTHING,
            model_schema=spec.model_schema if same_input else None,
            output_schema=None,
            version=self.after.hash,  # an answer is bound to what was shown
        )

    def question(self) -> Question:
        """What a person is asked, whatever the call: until then none of the tool's calls runs."""
        prompt = f"Agree to {self.name} as it is now? {self.reason[0].upper()}{self.reason[1:]}; a yes runs this call."
        return Question(
            kind="approval", prompt=prompt, reason="definition_changed", payload=self.payload(), key=DEFINITION
        )

    def payload(self) -> dict[str, Any]:
        """Old and new, part by part, for the person who decides."""
        before, after = self.before, self.after
        changes = [] if before is None else [change._asdict() for change in differences(before, after)]
        new = {"description": after.description, "arguments": list(after.arguments)}
        new |= {"annotations": after.annotations, "target": after.target}
        return {"reason": self.reason, "hash": after.hash, "new": before is None, "changes": changes, DEFINITION: new}
