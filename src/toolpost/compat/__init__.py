"""Names of other libraries over Toolpost's own, for programs that were written for those."""
