"""Objects with name, description, category, parameters and execute are registered as they are."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from tests.patient_settings import PatientSettings
from toolpost import Settings, Toolbox, ToolCategory, ToolContext, ToolRegistry, ToolResult
from toolpost.agents import ReactPlanner
from toolpost.errors import ToolExecutionError, ToolSchemaError, ToolValidationError
from toolpost.testing import ScriptedModel, tool_calls

SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Parameters(BaseModel):
    input: str
    optional: float | None = None


class MyCustomTool:
    name = "my_custom_tool"
    description = "Description of what this tool does"
    category = ToolCategory.CUSTOM
    parameters: Any = Parameters

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = time.time() * 1000
        if params["input"] == "bad":
            return ToolResult(success=False, error="no luck", started_at=started)
        return ToolResult(success=True, result=params["input"] * 2, started_at=started)


@pytest.mark.req("EXA-08")
async def test_a_custom_tool_registers_as_it_is_and_runs_like_any_other() -> None:
    async with Toolbox(settings=Settings(data_dir=None)) as box:
        box.registry.register(MyCustomTool())
        done: Any = await box.call("my_custom_tool", {"input": "ha"})
        failed: Any = await box.call("my_custom_tool", {"input": "bad"})
        refused: Any = await box.call("my_custom_tool", {"input": 7})
        spec = box.registry.find("my_custom_tool").spec
    assert done.content == "haha"
    assert isinstance(failed.error, ToolExecutionError)
    assert str(failed.error) == "no luck"
    assert isinstance(refused.error, ToolValidationError)
    assert (spec.category, spec.description) == (ToolCategory.CUSTOM, MyCustomTool.description)
    assert set(spec.input_schema["properties"]) == {"input", "optional"}


async def test_a_custom_tool_goes_wherever_tools_go(tmp_path: Path) -> None:
    def execute(params: Any, context: Any) -> dict[str, Any]:
        return {"success": params["input"] != "bad", "result": params["input"], "error": "no luck"}

    plain = SimpleNamespace(name="plain", description="", category="data", parameters=SCHEMA, execute=execute)
    registry = ToolRegistry()
    registry.register_many([plain, MyCustomTool()])
    assert [tool.spec.name for tool in registry.list_by_category(ToolCategory.DATA)] == ["plain"]
    model = ScriptedModel(tool_calls(("plain", {"input": "hello"})), "done")
    async with ReactPlanner(catalog=[plain], llm=model, settings={"data_dir": None}) as planner:
        await planner.run("Call it")
    assert model.results == ["hello"]
    source = {"name": "mine", "transport": "python", "connection": __file__}
    async with Toolbox(tools=[plain], settings=PatientSettings(data_dir=None, sources=[source])) as box:
        await box.wait_for_sources()
        failed: Any = await box.call("plain", {"input": "bad"})
        found: Any = await box.call("mine.my_custom_tool", {"input": "ha"})
    assert str(failed.error) == "no luck"
    assert found.content == "haha"


found_by_a_source = MyCustomTool()


def test_an_object_that_is_no_tool_says_what_it_lacks() -> None:
    half = SimpleNamespace(name="half", execute=lambda _params, _context: None)
    registry: Any = ToolRegistry()
    with pytest.raises(TypeError, match="it lacks description, category, parameters; give it these, or a `spec`"):
        registry.register(half)
    odd = SimpleNamespace(name="odd", description="", category="custom", parameters=7, execute=print)
    with pytest.raises(ToolSchemaError, match="parameters of 'odd' is a JSON Schema or a type, not int"):
        registry.register(odd)
