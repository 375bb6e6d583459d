"""The front door: Toolbox, its wiring, plug-ins and sources."""
