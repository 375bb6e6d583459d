"""`toolpost.yaml`: settings models, loading, editing, lint and extraction of secrets."""
