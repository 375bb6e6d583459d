"""The only code that opens a socket."""
