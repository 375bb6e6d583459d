"""Benchmarks beside peers: `python -m bench` from the root of a checkout."""
