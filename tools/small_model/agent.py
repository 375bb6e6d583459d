"""An agent with the small model: its tools, and the examples without which it does not know how to call them.

Of eight requests with three tools, so many calls of the model were valid JSON, of the right tool, with the right
arguments:

| reply held to                                    | examples     | valid | tool | arguments |
|--------------------------------------------------|--------------|-------|------|-----------|
| nothing                                          | none         | 0     | 0    | 0         |
| nothing                                          | one per tool | 8     | 8    | 5         |
| `anyOf`, one object per tool with its name const | none         | 8     | 4    | 4         |
| the same                                         | one per tool | 8     | 8    | 6         |
| the same, and `{"answer": text}`                 | one per tool | 8     | 7    | 7         |

Texts need a `maxLength`: without one, the model may repeat itself until its tokens are used up.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from toolpost import PlannerFinish, ReactPlanner, Settings, Toolbox, tool
from toolpost.agents import Budget
from toolpost.agents.results import OnEvent
from toolpost.models import OpenAIChat

# The grammar lets a text be as long as its schema says, and a small model goes on for as long as it may.
City = Annotated[str, Field(max_length=20)]
_OPTIONS = {"temperature": 0, "seed": 1, "max_tokens": 120}


@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="read")
def weather(city: City) -> str:
    """Tell the weather of a city."""
    return f"It rains in {city}."


def _example(request: str, name: str, arguments: dict[str, Any], result: str, answer: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {"role": "user", "content": request},
        {"role": "assistant", "content": None, "tool_calls": [{"id": name, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": name, "content": result},
        {"role": "assistant", "content": answer},
    ]


EXAMPLES = [
    *_example("What is 2 plus 9?", "add", {"a": 2, "b": 9}, "11", "2 plus 9 is 11."),
    *_example(
        "What is the weather in Rome?", "weather", {"city": "Rome"}, "It is sunny in Rome.", "It is sunny in Rome."
    ),
]


async def answer(url: str, request: str, on_event: OnEvent | None = None) -> PlannerFinish:
    """Let the model at a URL answer a request with the tools; every reply is held to a JSON Schema by its server."""
    async with (
        OpenAIChat("SmolLM2-135M-Instruct", base_url=url, options=_OPTIONS) as model,
        Toolbox(tools=[add, weather], settings=Settings(data_dir=None)) as box,
    ):
        planner = ReactPlanner(catalog=box, llm=model, mode="json", budget=Budget(steps=4), on_event=on_event)
        result = await planner.run(request, messages=EXAMPLES)
    if not isinstance(result, PlannerFinish):
        raise TypeError("none of the tools asks a person")
    return result
