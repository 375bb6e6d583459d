"""Files that outlive a power cut."""
