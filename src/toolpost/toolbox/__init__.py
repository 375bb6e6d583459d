"""The front door: Toolbox, ToolNode, MCPManager, the source manager, and their wiring."""
