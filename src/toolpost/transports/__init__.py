"""Transports: how sources of tools are made, detected and configured, for our own and for plug-ins alike."""
