"""The only code that opens a socket or starts a process."""
