"""Built-in tools on files: searching and listing many small ones, reading the middle of a large one."""
