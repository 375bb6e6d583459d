"""Gateways and workers under a steady load for half an hour: memory, descriptors, connections and latency stay flat."""
