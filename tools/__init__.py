"""Small programs for those who work on Toolpost; nothing here ships."""
