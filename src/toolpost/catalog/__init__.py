"""The typed catalog: tools, their names, and who may be found under which."""
