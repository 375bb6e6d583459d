"""Source of workflows: every version is a tool, and aliases lead to versions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.catalog.function import run_tool
from toolpost.catalog.names import canonical_name
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, ToolConnectionError
from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult, now_ms
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import SafetyProfile, Tool, ToolSpec, ToolTarget, replay_of
from toolpost.sources.base import BaseSource, Services
from toolpost.sources.workflow.definition import Workflow, read_folder
from toolpost.sources.workflow.options import WorkflowOptions
from toolpost.sources.workflow.run import run_workflow

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig


class WorkflowSource(BaseSource):
    """Source of the workflows of a file or a folder; each version is a tool."""

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._path = Path(config.connection)

    async def discover(self) -> Sequence[Tool]:
        """Read the files; skip and report invalid ones."""
        workflows, problems, files = await asyncio.to_thread(self._read)
        self.files = files
        versions, doubles = _by_version(workflows)
        tools = self._tools(versions)
        self.problems = [*problems, *doubles]
        return [tool for name, tool in tools.items() if self.config.includes(name)]

    def _read(self) -> tuple[list[tuple[Path, Workflow]], list[str], list[str]]:
        if not self._path.exists():
            missing = f"{self.config.connection!r} does not exist"
            raise ToolConnectionError(f"{missing}; name a YAML file or a folder of them", sent=False)
        workflows: list[tuple[Path, Workflow]] = []
        problems: list[str] = []
        files: list[str] = []
        for file, workflow in read_folder(self._path):
            files.append(str(file))
            if isinstance(workflow, Workflow):
                workflows.append((file, workflow))
            else:
                problems.append(workflow.message)
        if problems and not workflows:
            raise ToolConnectionError("; ".join(problems), sent=False)
        return workflows, problems, files

    def _tools(self, versions: Mapping[str, Mapping[int, Workflow]]) -> dict[str, Tool]:
        """Return the tools by their names within the source; raise ConfigError for an alias of an unknown version."""
        tools: dict[str, Tool] = {}
        aliased = {
            name
            for versions in self.config.read_options(WorkflowOptions).aliases.values()
            for name in ([versions] if isinstance(versions, str) else versions)
        }
        for name, by_version in versions.items():
            newest = max(by_version)
            for version, workflow in by_version.items():
                versioned = f"{name}_v{version}"
                if len(by_version) > 1 or versioned in aliased:
                    tools[versioned] = self._function(workflow, versioned)
            if len(by_version) == 1:
                tools[name] = self._function(by_version[newest], name)
            else:
                tools[name] = self._share_name(name, {f"{name}_v{newest}": 100}, tools)
        for name, versions_of in self.config.read_options(WorkflowOptions).aliases.items():
            shares = {versions_of: 100} if isinstance(versions_of, str) else versions_of
            tools[name] = self._share_name(name, shares, tools)
        return tools

    def _function(self, workflow: Workflow, name: str) -> WorkflowFunction:
        return WorkflowFunction(workflow, name=canonical_name(self.name, name), source=self.name)

    def _share_name(self, name: str, shares: Mapping[str, int], tools: Mapping[str, Tool]) -> SharedWorkflow:
        for version in shares:
            if not isinstance(tools.get(version), WorkflowFunction):
                names = [one for one, tool in tools.items() if isinstance(tool, WorkflowFunction)]
                near = nearest(version, names)
                hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
                alias = f"source {self.name!r}: alias {name!r}"
                raise ConfigError(f"{alias} leads to {version!r}, which is not a version; {hint}")
        members = [tools[version].spec for version in shares]
        canonical = {canonical_name(self.name, version): percent for version, percent in shares.items()}
        return SharedWorkflow(_shared_spec(canonical_name(self.name, name), members, canonical), canonical)

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        return await run_tool(call)


def _by_version(workflows: Sequence[tuple[Path, Workflow]]) -> tuple[dict[str, dict[int, Workflow]], list[str]]:
    """Return the workflows by name and version, and the problems of versions that exist in two files."""
    versions: dict[str, dict[int, Workflow]] = defaultdict(dict)
    problems: list[str] = []
    for file, workflow in workflows:
        if workflow.version in versions[workflow.name]:
            problems.append(
                f"{file.name}: {workflow.label} exists in another file, too; change the version of this one"
            )
        else:
            versions[workflow.name][workflow.version] = workflow
    return versions, problems


def _shared_spec(name: str, members: Sequence[ToolSpec], shares: Mapping[str, int]) -> ToolSpec:
    """Return the spec of a shared name: that of its first version, with the strictest effects of all versions."""
    first = members[0]
    strictest = max(members, key=lambda spec: (spec.has_effects, spec.safety.destructive is not False))
    return ToolSpec(
        name=name,
        description=first.description,
        input_schema=first.input_schema,
        side_effects=strictest.side_effects,
        safety=strictest.safety,
        replay=strictest.replay,
        resumes=True,
        timeout_s=max(spec.timeout_s or 0.0 for spec in members) or None,
        tags=first.tags,
        version=first.version if len(members) == 1 else "+".join(spec.version for spec in members),
        source=first.source,
        extra={**first.extra, "shares": dict(shares)},
        target=ToolTarget("workflow", " or ".join(shares)),  # without percentages, which may change during a pause
    )


class WorkflowFunction:
    """A workflow as a tool: `execute` runs its steps as calls of the same run."""

    def __init__(self, workflow: Workflow, *, name: str | None = None, source: str = "") -> None:
        self.workflow = workflow
        self.spec = _spec(workflow, name=name or workflow.name, source=source)

    async def run(self, params: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the workflow within a running call; raise PauseSignal if a nested call is paused."""
        return await run_workflow(self.workflow, params, context, recorded=self.spec.has_effects)

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = now_ms()
        output = await self.run(params, context)
        return ToolResult.completed(output if output.meta else output.content, output.text, started_at=started)


def _spec(workflow: Workflow, *, name: str, source: str) -> ToolSpec:
    data = workflow.data
    external = data.side_effects == "external"
    definition = json.dumps(data.model_dump(mode="json"), sort_keys=True)  # whole, so that an approval is bound to it
    steps = " → ".join(workflow.steps) if len(workflow.steps) <= 5 else f"{len(workflow.steps)} steps"
    return ToolSpec(
        name=name,
        description=data.description or f"Run the workflow {workflow.name} ({steps}).",
        input_schema=workflow.input_schema,
        side_effects=data.side_effects,
        safety=SafetyProfile(external, False, data.destructive, external),  # noqa: FBT003 - in the record's order
        replay=replay_of(data.side_effects),
        resumes=True,
        timeout_s=data.timeout_s,
        tags=tuple(data.tags),
        version=str(workflow.version),
        source=source,
        extra={"workflow": workflow.name},
        target=ToolTarget("workflow", f"{workflow.name}, version {workflow.version}: {steps}", definition),
    )


class SharedWorkflow:
    """A name for versions of a workflow: for one version, or by percentages for one version per call.

    The version is called as a tool, with separate counts, events and limits. A call that runs again keeps its version.
    """

    def __init__(self, spec: ToolSpec, shares: Mapping[str, int]) -> None:
        self.spec = spec
        self._shares = shares

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = now_ms()

        async def choose() -> str:
            return choose_version(self._shares, context.call_id)

        version = await context.once("version", choose, repeatable=True) if self.spec.has_effects else await choose()
        done = completed(await context.call(version, params, key="version"), context)
        return ToolResult.completed(done.content, done.text, started_at=started)


def completed(outcome: Outcome, context: ToolContext) -> Completed:
    """Return the outcome of a completed nested call; pause if it is paused, raise its error if it failed."""
    if isinstance(outcome, Paused):
        context.wait_for(outcome)
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome


def choose_version(shares: Mapping[str, int], call_id: str) -> str:
    """Choose the version of a call by the percentages; the same call always gets the same version."""
    point = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8]) % 100
    for version, percent in shares.items():
        point -= percent
        if point < 0:
            return version
    return next(iter(shares))
