"""JSON Schema: made from signatures, bounded, compiled into validators. No I/O."""
