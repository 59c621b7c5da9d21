"""Start the SpectrumSharingDApp of the dApp library, unmodified, in its own process: `... THRESHOLD_DB HEARD_FILE`.

The timestamp of every indication that it is given goes to the file, one a line, before the dApp itself has it: its
socket keeps the latest PDU only, so that on a busy machine it is not given all of them.
"""

import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import twinlink_e3 as e3

# It logs to /tmp/e3.log and /tmp/dapp.log, which on this machine may belong to another user.
with patch("logging.FileHandler", lambda _: logging.NullHandler()):
    from spectrum.spectrum_dapp import SpectrumSharingDApp

ASK_AGAIN_S = 3

heard = Path(sys.argv[2]).open("w", buffering=1)  # noqa: SIM115  (until the process is killed)
answered = threading.Event()


def subscribed(response: dict[str, Any]) -> None:
    dapp.e3_interface.add_indication_callback(dapp.dapp_id, response["subscriptionId"], note)
    answered.set()


def note(_: int, data: bytes) -> None:
    print(e3.decode_iq_data(data).timestamp, file=heard)


dapp = SpectrumSharingDApp(
    link="zmq", transport="ipc", noise_floor_threshold=int(sys.argv[1]), control=True, num_prbs=106, e_sampling=True
)
positive, response = dapp.setup_connection()
if not positive:
    sys.exit("no setup response")
print("set up", dapp.decode_ran_function_data(response["ranFunctionList"][0]["ranFunctionData"]), flush=True)
dapp.e3_interface.add_subscription_callback(dapp.dapp_id, subscribed)
time.sleep(1)  # as in the library's own example: its PUB socket must have connected before it sends
dapp.send_subscription_request()
while not answered.wait(ASK_AGAIN_S):  # the request, or the answer, is lost where a machine is too busy
    dapp.send_subscription_request()
dapp.control_loop()
