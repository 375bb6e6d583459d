"""Becomes the program as people start it, which imports what it needs by itself."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "toolpost", *sys.argv[1:]])
