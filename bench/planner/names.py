"""What the contenders are called, and the run that each of them makes; standard library only."""

OURS = "ReactPlanner in memory"
SQLITE = "ReactPlanner on SQLite"
LANGGRAPH = "LangGraph create_react_agent"
LANGGRAPH_OVER_BOX = "LangGraph create_react_agent over a Toolbox"
PENGUIFLOW = "Penguiflow ReactPlanner over a Toolbox"
PYDANTIC_AI = "pydantic-ai Agent"

CALLS = 10
STEPS = CALLS + 1
QUESTION = "What is 1 + 2 + 3, ten times?"
ANSWER = "It is 6."
