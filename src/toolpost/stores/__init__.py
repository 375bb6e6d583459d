"""Where runs, questions, journals and artifacts live: SQLite, files, memory."""
