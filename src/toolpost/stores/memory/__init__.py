"""The store in memory: the same contract as the SQLite store, without durability."""
