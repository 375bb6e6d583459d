"""Nodes for KNIME: `nodes` and `value_factories` are imported by KNIME, which brings `knime.extension`."""
