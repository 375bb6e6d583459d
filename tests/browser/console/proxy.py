"""A reverse proxy with TLS in front of a gateway: a program of its own, as it is elsewhere."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.conftest import PUBLIC
from tests.parts import node24
from tests.wire.certificates import Authority


@contextmanager
def tls_proxy(folder: Path, gateway_port: int, prefix: str) -> Iterator[str]:
    """Serve a gateway below a path prefix; gives the public address."""
    Authority(folder).server(PUBLIC)
    program = Path(__file__).with_name("proxy.mjs")
    command = [str(node24()), str(program), str(folder / f"{PUBLIC}.pem"), prefix, str(gateway_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the proxy ended before it listened"
            yield f"https://{PUBLIC}:{port}{prefix}"
        finally:
            process.kill()
