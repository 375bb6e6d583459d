"""The front of the library: Toolbox, ToolNode, MCPManager, the source manager, and their wiring."""
