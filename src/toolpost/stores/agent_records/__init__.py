"""Records of agents in the data folder of a machine: task logs, sessions, and folders of memory."""
