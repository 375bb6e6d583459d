"""The store in PostgreSQL, which processes on several machines share."""
