"""`python -m conformance`."""

import sys

from conformance.runner import main

sys.exit(main(sys.argv[1:]))
