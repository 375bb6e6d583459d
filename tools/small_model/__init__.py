"""A real language model of 135 million parameters, served on this machine's CPU."""
