"""Several processes on one database: approvals, a server that is killed, and a process that is stopped."""
