"""examples/exporting_dapp.py: the real dApp library, unmodified, exporting through twinlink."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
from twinlink_e3 import Endpoints

from twinlink.spectrum import Spectrum

from .agent import Agent, encode_indication, encode_pdu
from .conftest import Twin

EXAMPLE = Path(__file__).parents[2] / "examples" / "exporting_dapp.py"

# dapps 0.0.6 hard-codes its endpoints as class attributes, and log files that may belong to another user; a test needs
# private ones.
START = """
import logging, runpy, sys
logging.FileHandler = lambda _: logging.NullHandler()
from e3interface.e3_connector import E3Connector
names = "E3_IPC_SETUP_PATH", "E3_IPC_SOCKET_PATH", "DAPP_IPC_SOCKET_PATH"
for name, endpoint in zip(names, sys.argv[3:6], strict=True):
    setattr(E3Connector, name, endpoint.removeprefix("ipc://"))
sys.argv = sys.argv[1:3]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_example_exports_what_the_dapp_hears(endpoints: Endpoints, twin: Twin) -> None:
    link, endpoint = twin
    bins = np.random.default_rng(5).integers(-9, 9, (1536, 2), np.int16)
    arguments = [str(EXAMPLE), endpoint, endpoints.setup, endpoints.to_dapp, endpoints.from_dapp]
    with Agent(endpoints, first_dapp_id=3) as agent:
        process = subprocess.Popen([sys.executable, "-c", START, *arguments])
        try:
            agent.wait_for(lambda a: a.subscribed == [3])
            receiver = link.receiver("spectrum")
            message = None
            response = {"requestId": 1, "dAppIdentifier": 3, "responseCode": "positive", "subscriptionId": 1}
            for _ in range(300):
                # The library keeps only the newest message, so an indication may overwrite what came before it, even
                # the subscriptionResponse: say both again, with a pause between them.
                agent.send(encode_pdu("subscriptionResponse", response))
                message = receiver.receive(timeout=0.1)
                agent.send(encode_indication(3, bins.tobytes()))
                message = message or receiver.receive(timeout=0.1)
                if message:
                    break
        finally:
            process.kill()
            process.wait()
    assert message is not None
    spectrum = Spectrum.decode(message.payload)
    assert np.array_equal(spectrum.samples, np.roll(bins, 636, axis=0)[:1272])
    assert (spectrum.n_prbs, spectrum.scs_hz, spectrum.centre_hz) == (106, 30_000, 3.6192e9)


def test_the_example_has_at_most_15_lines_of_its_own() -> None:
    source = EXAMPLE.read_text()
    docstrings_and_imports = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    own = [
        line
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in docstrings_and_imports
    ]
    assert len(own) <= 15
