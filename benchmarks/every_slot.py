"""Every slot from shared memory to a flowgraph: ``python -m benchmarks.every_slot [--seconds 600]``.

An emulated gNB writes 2000 slots a second to shared memory, in a process of its own; the exporter, in another, reads
and sends them; this process receives them in a flowgraph: Twinlink Source, and a probe.  Of one slot in ten, each
symbol is compared with the recording, bit for bit.  Options after ``--`` go to the exporter, such as
``-- --slots-per-message 4``.

Printed are slots received and missing, their age (from when the gNB had written a slot to the probe's work), and the
processor time of each process, in cores.  The exporter's own counters, such as slots that were overwritten before it
read them (late), are those from its start.  The exit code is 1 if a slot is missing or differs.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from twinlink_measure.channels import PORTS
from twinlink_ran_emulator import make_recording
from twinlink_ran_emulator.recording import Recording, read
from twinlink_ran_emulator.slot_writer import turned
from twinlink_replay.blocks import Source
from twinlink_replay.blocks.gnuradio_compat import ThreadState, gr, keep, pmt

from twinlink.process.ports import free_ports
from twinlink.slots import Content

BETA = 1 / 2048
COMPARED = 10  # one slot of so many
START_S = 30.0
KEYS = tuple(pmt.intern(name) for name in ("packet_len", "slot", "gap", "dropped"))


class Probe(gr.sync_block):  # type: ignore[misc]
    """Counts slots, and compares some of them with the recording."""

    def __init__(self, recording: Recording) -> None:
        gr.sync_block.__init__(self, name="Slot Probe", in_sig=[np.complex64], out_sig=None)
        keep(self)
        self._thread_state = ThreadState()
        self._known: dict[bytes, NDArray[np.complex64]] = {}
        for samples in recording.samples:
            rows = (turned(samples, BETA).astype(np.float32) / np.float32(BETA)).view(np.complex64)[..., 0]
            for turn in range(4):
                self._known.setdefault(rows[turn].tobytes()[:256], np.roll(rows, -turn, axis=0))
        self._parts: list[NDArray[np.complex64]] = []  # of the slot that is being compared
        self._rest = self._n_prbs = 0  # of its samples; of its PRBs
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self.slots = self.missing = self.dropped = self.compared = self.different = 0
        self.ages_ns: list[int] = []

    def start(self) -> bool:
        """Called by the scheduler."""
        self._thread_state.hold()
        return True

    def stop(self) -> bool:
        """Called by the scheduler."""
        self._thread_state.release()
        return True

    def work(self, input_items: list[Any], output_items: list[Any]) -> int:
        """Called by the scheduler."""
        now_ns, samples = time.monotonic_ns(), input_items[0]
        first = self.nitems_read(0)
        lengths, slots, gaps, dropped = (self.get_tags_in_window(0, 0, len(samples), key) for key in KEYS)
        self._collect(samples[: self._rest])
        for length, slot, gap, drops in zip(lengths, slots, gaps, dropped, strict=True):
            self.slots += 1
            self.missing += pmt.to_long(gap.value)
            self.dropped += pmt.to_long(drops.value)
            self.ages_ns.append(now_ns - field(slot, "timestamp"))
            if field(slot, "content") == Content.IQ and not self.slots % COMPARED:
                self._rest, self._n_prbs = pmt.to_long(length.value), field(slot, "n_prbs")
                start = slot.offset - first
                self._collect(samples[start : start + self._rest])
        return len(samples)

    def _collect(self, part: NDArray[np.complex64]) -> None:
        if not len(part):
            return
        self._parts.append(part.copy())
        self._rest -= len(part)
        if not self._rest:
            self._compare(np.concatenate(self._parts).reshape(-1, self._n_prbs * 12))
            self._parts = []

    def _compare(self, symbols: NDArray[np.complex64]) -> None:
        first = self._known.get(symbols[0].tobytes()[:256])
        same = first is not None and all(np.array_equal(row, first[k % 4]) for k, row in enumerate(symbols))
        self.compared += len(symbols)
        self.different += 0 if same else len(symbols)


def field(tag: Any, name: str) -> int:
    """A number of a tag ``slot``."""
    return int(pmt.to_long(pmt.dict_ref(tag.value, pmt.intern(name), pmt.PMT_NIL)))


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="zeromq")
    parser.add_argument("--n-prbs", type=int, default=106)
    parser.add_argument("--tdd", default="U", metavar="DDDDDDDSUU", help="slots of a period; U: FDD")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("exporter", nargs="*", metavar="-- OPTION", help="options of the exporter")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="e3-") as folder:
        found = run(given, Path(folder))
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{name:28}{value}" for name, value in found.items()))
    return 0 if found["slots"] and not found["missing"] and not found["symbols_different"] else 1


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What was measured; times in ms."""
    make_recording.write(folder / "uplink", make_recording.Settings(n_prbs=given.n_prbs, seconds=1.0, episodes=()))
    recording = read(folder / "uplink.sigmf-meta")
    endpoint = f"tcp/127.0.0.1:{free_ports(PORTS)}"
    source, probe = Source(given.transport, listen=endpoint), Probe(recording)
    top = gr.top_block()
    top.connect(source, probe)
    top.start()
    channels = [f"--{name}=ipc://{folder}/{name}" for name in ("setup", "to-dapp", "from-dapp")]
    carrier = (f"--n-prbs={given.n_prbs}", f"--transport={given.transport}", f"--connect={endpoint}")
    link = ("--e3-link=posix", *channels)
    processes = {
        "emulator": start("ran_emulator", *link, "--e3-generation=G2b", f"--recording={recording.path}", "--loop=0",
                          "--slots", f"--tdd={given.tdd}", f"--shm-suffix=.{os.getpid()}", log=folder / "emulator"),
        "exporter": start("exporter", *link, *carrier, *given.exporter, f"--summary={folder}/summary",
                          log=folder / "exporter"),
    }  # fmt: skip
    try:
        until_s = time.monotonic() + START_S
        while probe.slots < 500 and time.monotonic() < until_s:
            time.sleep(0.1)
        before = {name: cpu_s(process.pid) for name, process in processes.items()}
        own, began_s, load = resource.getrusage(resource.RUSAGE_SELF), time.monotonic(), os.getloadavg()[0]
        probe.begin()
        time.sleep(given.seconds)
        passed_s, slots = time.monotonic() - began_s, probe.slots
        cores = {name: (cpu_s(process.pid) - before[name]) / passed_s for name, process in processes.items()}
        now = resource.getrusage(resource.RUSAGE_SELF)
        cores["source"] = (now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime) / passed_s
        processes["exporter"].terminate()
        processes["exporter"].wait()
        summary = json.loads((folder / "summary").read_text())
        ages = np.percentile(np.array(probe.ages_ns[:slots] or [0]) / 1e6, [50, 99, 100]).round(2).tolist()
        return {
            "slots": slots,
            "slots_per_second": round(slots / passed_s, 1),
            "missing": probe.missing,
            "dropped_by_the_source": probe.dropped,
            "lost_on_the_way": summary["spectrum"]["lost"],
            **{name: summary[name] for name in ("slots_late", "slots_not_indicated", "slots_unreadable")},
            "symbols_compared": probe.compared,
            "symbols_different": probe.different,
            **dict(zip(("age_p50_ms", "age_p99_ms", "age_max_ms"), ages, strict=True)),
            **{f"{name}_cores": round(value, 2) for name, value in cores.items()},
            "load_average_at_the_start": load,
            "processors": os.cpu_count(),
        }
    finally:
        for process in reversed(processes.values()):
            process.terminate()
            process.wait()
        top.stop()
        top.wait()


def start(program: str, *arguments: str, log: Path) -> "subprocess.Popen[bytes]":
    """A program of this project, with its messages in a file."""
    with log.open("wb") as file:
        return subprocess.Popen((sys.executable, "-m", f"twinlink_{program}", *arguments), stderr=file)


def cpu_s(pid: int) -> float:
    """Processor time of a process and its children, such as the emulator's, which writes the slots."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_s, map(int, children)))


if __name__ == "__main__":
    sys.exit(main())
