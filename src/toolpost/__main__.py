"""`python -m toolpost` is the command line."""

import sys

from toolpost.cli import main

if __name__ == "__main__":
    sys.exit(main())
