"""Delay of the source block: ``python -m benchmarks.replay_latency [--transport zenoh] [--n-prbs 106] [--json]``.

A sender in the same process sends symbols at a constant rate over loopback.  The delay is measured from the arrival of
the message from the transport (``received_ns``) to the ``work`` of the next block, for the last sample of the message.
"""

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
from twinlink_measure.channels import PORTS
from twinlink_replay.blocks import Source
from twinlink_replay.blocks.assembler import PacketAssembler
from twinlink_replay.blocks.gnuradio_compat import gr, keep, pmt

import twinlink
from twinlink.process.ports import free_ports
from twinlink.spectrum import Spectrum

WARM_UP = 50


class _Probe(gr.sync_block):  # type: ignore[misc]
    def __init__(self) -> None:
        gr.sync_block.__init__(self, name="Latency Probe", in_sig=[np.complex64], out_sig=None)
        keep(self)
        self.delays_ns: list[int] = []
        self._packets = PacketAssembler(refuse=print)

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        now_ns = time.time_ns()
        for _, tags in self._packets.add(self, input_items[0]):
            self.delays_ns.append(now_ns - pmt.to_uint64(tags["received_ns"]))
        return len(input_items[0])


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", default="zeromq")
    parser.add_argument("--n-prbs", type=int, default=106)
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    endpoint = f"tcp/127.0.0.1:{free_ports(PORTS)}"
    source, probe = Source(arguments.transport, listen=endpoint), _Probe()
    top = gr.top_block()
    top.connect(source, probe)
    top.start()
    values = np.zeros((arguments.n_prbs * 12, 2), np.int16)
    payload = Spectrum(values, arguments.n_prbs, 30_000, 3.6192e9, time.time_ns(), e3={"timestamp": 1}).encode()
    with twinlink.open(arguments.transport, connect=endpoint) as gnb:
        gnb.wait_ready(10)
        sender, begin = gnb.sender("spectrum"), time.monotonic()
        for k in range(arguments.count + WARM_UP):
            time.sleep(max(0.0, begin + k / arguments.rate - time.monotonic()))
            sender.send(payload)
        sender.flush(10)
        time.sleep(0.2)
    top.stop()
    top.wait()
    delays_us = np.array(probe.delays_ns[WARM_UP:]) / 1e3
    percentiles = {f"p{p}_us": round(float(np.percentile(delays_us, p)), 1) for p in (50, 90, 99)}
    result = {"transport": arguments.transport, "n": len(delays_us), **percentiles, "max_us": float(delays_us.max())}
    print(json.dumps(result) if arguments.json else ", ".join(f"{name} {value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
