"""Frozen data, errors and Protocols: what every layer shares. No I/O."""
