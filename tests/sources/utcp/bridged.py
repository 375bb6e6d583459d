"""Calls tools of a made-up protocol over the bridge, where the packages of UTCP are; prints what came of it."""

import asyncio
import json
import sys
from typing import Any, Literal

from utcp.data.call_template import CallTemplate  # type: ignore[import-not-found]
from utcp.data.register_manual_response import RegisterManualResult  # type: ignore[import-not-found]
from utcp.data.utcp_manual import UtcpManual, UtcpManualSerializer  # type: ignore[import-not-found]
from utcp.interfaces.communication_protocol import CommunicationProtocol  # type: ignore[import-not-found]
from utcp.interfaces.serializer import Serializer  # type: ignore[import-not-found]
from utcp.plugins.discovery import register_call_template, register_communication_protocol  # type: ignore[import-not-found]

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox


class EchoTemplate(CallTemplate):  # type: ignore[misc]
    call_template_type: Literal["echo"] = "echo"
    prefix: str = ""


class EchoSerializer(Serializer):  # type: ignore[misc]
    def to_dict(self, obj: Any) -> Any:
        return obj.model_dump()

    def validate_dict(self, data: Any) -> Any:
        return EchoTemplate.model_validate(data)


class EchoProtocol(CommunicationProtocol):  # type: ignore[misc]
    async def register_manual(self, caller: Any, manual_call_template: Any) -> Any:
        tools = [{"name": "found", "tool_call_template": EchoSerializer().to_dict(manual_call_template)}]
        manual: UtcpManual = UtcpManualSerializer().validate_dict({"utcp_version": "1.0", "tools": tools})
        return RegisterManualResult(manual_call_template=manual_call_template, manual=manual, success=True, errors=[])

    async def deregister_manual(self, caller: Any, manual_call_template: Any) -> None:
        pass

    async def call_tool(self, caller: Any, tool_name: str, tool_args: Any, tool_call_template: Any) -> Any:
        if "name" in tool_args:
            return tool_name
        if "odd" in tool_args:
            raise RuntimeError("odd")
        if "fail" in tool_args:
            raise ConnectionError("connection lost")
        return {"prefix": tool_call_template.prefix, **tool_args}

    async def call_tool_streaming(self, *_: Any) -> Any:
        yield None


async def main(connection: str, bridge: bool) -> dict[str, Any]:
    utcp = {"bridge": bridge, "variables": {"m_WORD": "hello"}}
    one = ExternalToolConfig(name="m", transport="utcp", connection=connection, options=utcp)
    async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[one])) as box:
        tools = [spec.name for spec in box.registry.specs() if spec.source == "m"]
        answers: list[Any] = [await box.call(name, {"a": 1}) for name in tools]
        failed: list[Any] = [await box.call(name, {"fail": True}) for name in tools]
        names: list[Any] = [await box.call(name, {"name": True}) for name in tools]
        odd: list[Any] = [await box.call(name, {"odd": True}) for name in tools]
        return {
            "tools": tools,
            "contents": [outcome.content for outcome in answers],
            "errors": [outcome.error.error_code for outcome in failed],
            "names": [outcome.content for outcome in names],
            "odd": [outcome.error.message for outcome in odd],
            "report": [state.error for state in box.report],
        }


if __name__ == "__main__":
    register_call_template("echo", EchoSerializer())
    register_communication_protocol("echo", EchoProtocol())
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2] == "bridge"))))
