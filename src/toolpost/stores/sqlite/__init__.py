"""The SQLite store: one database and its files in a data folder, shared by the processes of one machine."""
