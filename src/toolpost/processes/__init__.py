"""Child processes: servers and commands, started and ended under one supervisor."""
