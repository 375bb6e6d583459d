"""The front door: configuration, plug-ins and wiring."""
