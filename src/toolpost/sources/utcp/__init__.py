"""Source of tools for UTCP manuals, and export of the catalog as a manual."""
