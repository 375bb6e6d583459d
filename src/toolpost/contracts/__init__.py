"""Frozen data, errors and Protocols: what every layer speaks. No I/O."""
