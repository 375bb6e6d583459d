"""A small stand-in for the Python packages of KNIME, which come with KNIME alone: the shape that nodes need of them."""
