"""A name with several addresses, at either end of the bridge."""

from pathlib import Path

import pytest

from tests.link import named_host

_BRIDGE = """
import socket, threading
from twinlink_measure.mgen.egress import Egress
from twinlink_measure.mgen.ingress import Ingress
from twinlink.appkit.mgen_message import Address, Flag, Packet, Protocol

stands_for("127.0.0.1", "::1")
said = []
stopped = threading.Event()
near = twinlink.open("memory", listen="tcp/bridge:1", node="near")
far = twinlink.open("memory", connect="tcp/bridge:1", node="far")
far.wait_ready(patience())

def listener(address, kind, port):
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    made.bind((address, port))
    made.settimeout(patience())
    if kind == socket.SOCK_STREAM:
        made.listen()
    return made

def runs(end):
    thread = threading.Thread(target=end.run, args=(stopped.is_set,))
    thread.start()
    return thread

def ends(*threads):
    stopped.set()
    for thread in threads:
        thread.join()
    near.close()
    far.close()

def packet(sequence):
    return Packet(1000, Flag.LAST_BUFFER, 1, sequence, 0, Address("127.0.0.1", 1)).serialize()

"""

_OUT = """
udp, tcp = listener(arguments[0], socket.SOCK_DGRAM, 6203), listener(arguments[0], socket.SOCK_STREAM, 6204)
out = Egress(far, udp=Address("twin.example", 6203), tcp=Address("twin.example", 6204), say=said.append)
running = runs(out)
sender = near.sender("mgen")
for number in range(10):
    for protocol in Protocol:
        sender.send(bytes([protocol]) + packet(number))
assert [udp.recv(2000) for _ in range(10)] == [packet(number) for number in range(10)]
connection, _ = tcp.accept()
assert connection.recv(10_000, socket.MSG_WAITALL) == b"".join(map(packet, range(10)))
wait_until(lambda: out.stats()["forwarded"] == 20)
ends(running)
print({key: out.stats()[key] for key in ("forwarded", "held", "refused", "failed")})
print(*said, sep="\\n")
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_goes_to_a_name_reaches_the_address_where_mgen_listens(address: str, tmp_path: Path) -> None:
    counts, *said = named_host.run(tmp_path, _BRIDGE + _OUT, address).splitlines()
    assert counts == "{'forwarded': 20, 'held': 0, 'refused': 0, 'failed': 0}"
    assert said == [f"connected to TCP twin.example:6204 ({address})"]


_NOTHING_LISTENS = """
out = Egress(far, udp=Address("twin.example", 6203), tcp=Address("twin.example", 6204), say=said.append)
running = runs(out)
sender = near.sender("mgen")
for number in range(10):
    sender.send(bytes([Protocol.UDP]) + packet(number))
wait_until(lambda: out.stats()["refused"] == 10)
wait_until(lambda: len(said) == 2)
ends(running)
print(*sorted(said), sep="\\n")
"""


def test_where_mgen_listens_at_no_address_each_datagram_is_counted_once(tmp_path: Path) -> None:
    said = named_host.run(tmp_path, _BRIDGE + _NOTHING_LISTENS).splitlines()
    assert said[0] == "no connection to TCP twin.example:6204 (::1): Connection refused; tries again and again"
    assert said[1].startswith("nothing listens at UDP twin.example:6203")


_IN = """
into = Ingress(near, udp=Address("twin.example", 0), tcp=Address("twin.example", 0), say=said.append)
running = runs(into)
for address in ("127.0.0.1", "::1"):
    for protocol, kind in ((Protocol.UDP, socket.SOCK_DGRAM), (Protocol.TCP, socket.SOCK_STREAM)):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as sending:
            sending.connect((address, into.addresses[protocol].port))
            sending.sendall(packet(1))
wait_until(lambda: into.stats()["acknowledged"] == 4)
ends(running)
print({key: into.stats()[key] for key in ("udp", "tcp", "dropped")})
"""


def test_the_bridge_takes_messages_at_every_address_of_a_name(tmp_path: Path) -> None:
    assert named_host.run(tmp_path, _BRIDGE + _IN) == "{'udp': 2, 'tcp': 2, 'dropped': 0}\n"
