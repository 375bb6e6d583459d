"""The contenders that are not ours, one module for each; imported only in their own environments."""
