"""Stores of runs, questions, journals and artifacts: SQLite, PostgreSQL, memory; contents in files or buckets."""
