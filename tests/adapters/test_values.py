"""Tool values as structs: the twelve fields, older and later forms, and what cannot be read."""

import json
import re
import warnings
from dataclasses import FrozenInstanceError
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters import samples
from toolpost.adapters import (
    MCPTool,
    MCPToolValueFactory,
    ToolExecutionResult,
    ToolPort,
    ToolType,
    ToolValue,
    ToolValueFactory,
    WorkflowTool,
    WorkflowToolValueFactory,
)
from toolpost.adapters.values import Tool
from toolpost.errors import ToolValueError

FACTORY = ToolValueFactory()
TEXT = st.text(min_size=1)
SCHEMAS = st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))


@pytest.mark.req("KTYPE-01", "KTYPE-02", "KTYPE-04")
def test_values_have_the_attributes_of_their_type_and_cannot_be_changed() -> None:
    tool = MCPTool("n", "d", {}, "u", "t")

    assert (tool.input_schema, tool.output_type, tool.tool_type) == (None, None, ToolType.MCP)
    assert WorkflowTool("n", "d", {}).message_output_port_index == -1
    assert WorkflowTool("n", "d", {}, _filestore_keys=b"k").tool_type is ToolType.WORKFLOW
    assert [ToolType.WORKFLOW.value, ToolType.MCP.value] == ["WORKFLOW", "MCP"]
    with pytest.raises(FrozenInstanceError):
        tool.name = "other"  # type: ignore[misc]


@pytest.mark.req("KTYPE-03")
def test_a_port_is_stored_by_four_fields() -> None:
    port = ToolPort("in", "rows", "table", {"x": "int"})

    stored = port._to_arrow_dict()  # noqa: SLF001 - the name that hosts call

    assert stored == {"0": "in", "1": "rows", "2": "table", "3": {"x": "int"}}
    assert [ToolPort._from_arrow_dict(one) for one in (stored, None)] == [port, None]  # noqa: SLF001 - the same


@pytest.mark.req("KTYPE-05", "KTYPE-16", "FUT-06")
def test_the_union_has_every_type_of_value() -> None:
    assert {made.tool_type for made in samples.EVERY if made} == set(ToolType)
    assert {type(made) for made in samples.EVERY if made} == set(get_args(Tool))


@pytest.mark.req("KTYPE-06", "KTYPE-08", "KTYPE-18")
def test_a_value_is_encoded_as_twelve_fields() -> None:
    assert FACTORY.encode(samples.MCP) == {
        "0": "MCP",
        "1": "add",
        "2": "Add two numbers.",
        "3": json.dumps(samples.SCHEMA),
        "4": None,
        "5": None,
        "6": None,
        "7": -1,
        "8": samples.URI,
        "9": "add",
        "10": None,
        "11": None,
    }
    stored = FACTORY.encode(samples.WORKFLOW)
    assert stored is not None
    assert [stored[key] for key in ("0", "4", "7", "8", "9", "10", "11")] == ["WORKFLOW", b"\x00zip", 1, *[None] * 4]
    assert json.loads(stored["5"]) == [{"0": "in", "1": "rows", "2": "table", "3": {"x": "int"}}]
    assert list(stored) == [str(number) for number in range(12)]


def test_only_the_name_of_a_credential_is_stored() -> None:
    stored = FACTORY.encode(samples.MCP_WHOLE)

    assert stored is not None
    assert (stored["12"], stored["13"]) == (1, "crm")


@pytest.mark.req("KTYPE-07", "KTYPE-11")
@pytest.mark.parametrize("value", samples.EVERY)
def test_what_was_encoded_is_decoded_as_it_was(value: Any) -> None:
    assert FACTORY.decode(FACTORY.encode(value)) == value


@given(st.builds(MCPTool, TEXT, st.text(), SCHEMAS, TEXT, TEXT, st.none() | SCHEMAS, st.none() | st.text()))
def test_any_value_of_an_mcp_tool_is_decoded_as_it_was(value: MCPTool) -> None:
    assert FACTORY.decode(FACTORY.encode(value)) == value


@pytest.mark.req("KTYPE-09")
def test_what_is_no_tool_is_not_encoded() -> None:
    with pytest.raises(TypeError, match="Unknown tool type: <class 'str'>"):
        FACTORY.encode("add")


@pytest.mark.req("KTYPE-10")
def test_empty_fields_have_the_values_that_stand_for_nothing() -> None:
    empty = {"1": "n", "2": None, "3": "", "4": None, "5": "", "6": None}
    mcp = FACTORY.decode({"0": "MCP", **empty, "8": "u", "9": "t", "10": "", "11": None})
    workflow = FACTORY.decode({"0": "WORKFLOW", **empty})

    assert mcp == MCPTool("n", "", {}, "u", "t", None, None)
    assert workflow == WorkflowTool("n", "", {}, None, [], [], -1)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"0": "SOAP"}, "Unknown tool type: SOAP"),
        ({"0": None}, "Unknown tool type: None"),
        ({"1": None}, "field 1 (name) is missing"),
        ({"1": ""}, "field 1 (name) is empty"),
        ({"3": "{"}, "field 3 (parameter_schema) is not JSON"),
        ({"3": "[]"}, "field 3 (parameter_schema) has a JSON array; it must be an object"),
        ({"8": None}, "field 8 (server_uri) is missing"),
        ({"9": 7}, "field 9 (tool_name) is a int"),
        ({"10": "nope"}, "field 10 (input_schema) is not JSON"),
        ({"12": 2}, "field 12 (schema_version) is 2, and this release reads versions up to 1; install a newer one"),
    ],
)
def test_a_struct_that_cannot_be_read_is_reported_by_its_field(changed: dict[str, Any], complaint: str) -> None:
    stored = {**(FACTORY.encode(samples.MCP) or {}), **changed}

    with pytest.raises(ValueError, match=re.escape(complaint)) as caught:
        FACTORY.decode(stored)
    assert isinstance(caught.value, ToolValueError)


@pytest.mark.parametrize("ports", ["{}", "[1]", '[{"0": "x"}]', "no"])
def test_ports_that_cannot_be_read_are_reported(ports: str) -> None:
    stored = {**(FACTORY.encode(samples.WORKFLOW) or {}), "5": ports}

    with pytest.raises(ToolValueError, match=r"field 5 \(input_ports\)"):
        FACTORY.decode(stored)


@pytest.mark.parametrize("count", range(1, 9))
def test_a_truncated_struct_is_an_error(count: int) -> None:
    stored = dict(list((FACTORY.encode(samples.MCP) or {}).items())[:count])

    with pytest.raises(ToolValueError, match="field"):
        FACTORY.decode(stored)


PORTS = [{"0": "in", "1": "rows", "2": "table", "3": None}]
NUMBERED = {
    "0": 1,
    "1": "add",
    "2": "Add.",
    "3": json.dumps(samples.SCHEMA),
    "4": None,
    "5": None,
    "6": -1,
    "7": None,
    "8": samples.URI,
}


@pytest.mark.req("KMIG-01", "KMIG-03", "TEST-06")
@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (NUMBERED, MCPTool("add", "Add.", samples.SCHEMA, samples.URI, "add")),
        ({**NUMBERED, "9": "crm"}, MCPTool("add", "Add.", samples.SCHEMA, samples.URI, "add", credential_name="crm")),
        (
            {**NUMBERED, "0": 0, "4": json.dumps(PORTS), "5": PORTS, "6": 0, "7": b"k", "8": None},
            WorkflowTool(
                *("add", "Add.", samples.SCHEMA, b"k"),
                *([ToolPort("in", "rows")], [ToolPort("in", "rows")], 0),
            ),
        ),
        (
            {"0": "add", "1": "Add.", "2": json.dumps(samples.SCHEMA), "3": b"zip", "4": PORTS, "5": []},
            WorkflowTool("add", "Add.", samples.SCHEMA, b"zip", [ToolPort("in", "rows")]),
        ),
        (
            {"0": b"key", "1": {**NUMBERED, "0": 0, "8": None}},
            WorkflowTool("add", "Add.", samples.SCHEMA, b"key"),
        ),
        ({"0": "", "1": NUMBERED}, MCPTool("add", "Add.", samples.SCHEMA, samples.URI, "add")),
    ],
    ids=["nine fields", "ten fields", "nine fields, workflow", "six fields", "file store", "no file store"],
)
def test_values_of_other_forms_are_read_and_written_in_the_one_form(stored: dict[str, Any], value: Any) -> None:
    assert FACTORY.decode(stored) == value
    assert FACTORY.decode(FACTORY.encode(value)) == value


def test_a_number_that_is_no_type_is_reported() -> None:
    with pytest.raises(ToolValueError, match="Unknown tool type: 7"):
        FACTORY.decode({**NUMBERED, "0": 7})


@pytest.mark.req("KTYPE-12", "KMIG-02", "KMIG-04")
@pytest.mark.parametrize("old", [WorkflowToolValueFactory, MCPToolValueFactory])
def test_the_old_factories_warn_where_they_are_made_and_do_the_same(old: type[ToolValueFactory]) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old.__name__} is deprecated, use ToolValueFactory instead") as told:
        factory = old()

    assert told[0].filename == __file__
    assert [factory.decode(factory.encode(value)) for value in samples.EVERY] == samples.EVERY


def test_the_one_factory_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ToolValueFactory()


@pytest.mark.req("KTYPE-13", "MISC-10")
async def test_a_value_is_executed_by_whoever_knows_its_type() -> None:
    class Echo:
        async def execute(self, value: ToolValue, parameters: Any) -> ToolExecutionResult:
            return ToolExecutionResult(text=f"{value.tool_type.value} {value.name} {dict(parameters)}")

    told = [(await value.execute({"a": 1}, Echo())).text for value in (samples.MCP, samples.WORKFLOW)]

    assert told == ["MCP add {'a': 1}", "WORKFLOW clean {'a': 1}"]
    described: list[ToolValue] = [samples.MCP, samples.WORKFLOW]
    assert [(one.description, one.parameter_schema) for one in described] == [
        ("Add two numbers.", samples.SCHEMA),
        ("Clean a table.", samples.SCHEMA),
    ]


@pytest.mark.parametrize("cell", ["text", 5, [1], b"bytes"])
def test_a_cell_of_another_column_is_no_tool_value(cell: Any) -> None:
    with pytest.raises(ToolValueError, match=f"a tool value is a struct of numbered fields, not {type(cell).__name__}"):
        ToolValueFactory().decode(cell)
