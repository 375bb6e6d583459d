"""Tools that come with Toolpost."""
