"""Start the SpectrumSharingDApp of the dApp library, unmodified, in its own process: `... THRESHOLD_DB [PAUSE_S]`."""

import logging
import sys
import time

from spectrum.spectrum_dapp import SpectrumSharingDApp

dapp = SpectrumSharingDApp(
    link="zmq", transport="ipc", noise_floor_threshold=int(sys.argv[1]), control=True, num_prbs=106, e_sampling=True
)
logging.disable()  # its log files are at fixed places in /tmp
positive, response = dapp.setup_connection()
if not positive:
    sys.exit("no setup response")
print("set up", dapp.decode_ran_function_data(response["ranFunctionList"][0]["ranFunctionData"]), flush=True)
time.sleep(1)  # as in the library's own example: its PUB socket must have connected before it sends
dapp.send_subscription_request()
dapp.control_loop()
