"""What the tests of built-in tools share."""

import os
import sys
from pathlib import Path

# Programs that come with the packages of the environment, ripgrep among them, are found as if it were activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix, "bin")), os.environ.get("PATH", "")])
