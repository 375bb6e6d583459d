"""Figures of the REST interface, measured at a running gateway."""
