"""Find out how to connect a source: endpoint detection, presets, import of other clients' files."""
