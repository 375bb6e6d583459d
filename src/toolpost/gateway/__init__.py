"""The gateway: serve the catalog of a Toolbox to agents in any language."""
