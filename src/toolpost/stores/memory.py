class MemoryStore:
    pass
