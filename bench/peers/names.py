"""What the peers' rows are called."""

MANAGER = "pydantic-ai ToolManager.handle_call"
TOOLSET = "pydantic-ai toolset, no manager"
CONTROL = "direct await, in pydantic-ai's process"
STEP = "pydantic-ai ToolManager.for_run_step"
