"""Parts of a store that SQLite and PostgreSQL share, on the statements that both understand."""
