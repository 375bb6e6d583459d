"""A plug-in of pytest that measures coverage in a program of its own, where the environment says so."""

from coverage import process_startup

process_startup()
