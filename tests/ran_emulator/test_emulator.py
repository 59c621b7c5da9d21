import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twinlink_e3 as e3
import zmq
from twinlink_ran_emulator import __main__ as command
from twinlink_ran_emulator.emulator import choose_fft_size
from twinlink_ran_emulator.recording import Recording, read

from twinlink.errors import ConfigurationError
from twinlink.testing import free_endpoint, wait_until

from .running import PATIENCE_S, DApp, Process
from .test_recording import foreign


def free_tcp() -> e3.Endpoints:
    first = int(free_endpoint(3).rpartition(":")[2])
    return e3.Endpoints(*(f"tcp://127.0.0.1:{first + number}" for number in range(3)))


def natural(indications: list[e3.IqDataIndication], n_prbs: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    bins = [np.frombuffer(each.iq_samples, "<i2").reshape(-1, 2) for each in indications]
    return np.stack([e3.natural_from_fft(each, n_prbs) for each in bins])


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_every_record_arrives_as_recorded(
    transport: str, ipc: e3.Endpoints, tmp_path: Path, small_path: Path, small: Recording
) -> None:
    endpoints = ipc if transport == "ipc" else free_tcp()
    arguments = ("--pace", "max", "--loop", "3", "--heard", str(tmp_path / "heard"))
    with Process(small_path, endpoints, tmp_path / "log", *arguments) as emulator, DApp(endpoints) as dapp:
        received = dapp.indications(600)
        assert [each.timestamp for each in received] == list(range(1, 601))
        assert {each.sample_count for each in received} == {1024}
        assert np.array_equal(natural(received, 24), np.tile(small.samples, (3, 1, 1)))
        done = emulator.wait_event("done")
        assert (done["records"], done["complete"]) == (600, True)
        code, said = emulator.stop()
        assert (code, "Traceback" in said) == (0, False)
    heard = read(tmp_path / "heard" / "heard")
    assert np.array_equal(heard.samples, np.tile(small.samples, (3, 1, 1)))
    assert np.array_equal(heard.ue, np.tile(small.ue, (3, 1)))
    assert np.array_equal(heard.interferer > 0, np.tile(small.interferer > 0, (3, 1)))
    with np.load(tmp_path / "heard" / "heard.npz") as times:
        assert times["played_ns"].shape == (600,)
        assert (np.diff(times["played_ns"]) >= 0).all()
        assert times["blocked"].shape == (600, 24)
        assert not times["blocked"].any()


def test_a_block_takes_the_ues_out_and_is_logged(
    ipc: e3.Endpoints, tmp_path: Path, small_path: Path, small: Recording
) -> None:
    arguments = ("--pace", "4", "--loop", "0", "--heard", str(tmp_path / "heard"))
    with Process(small_path, ipc, tmp_path / "log", *arguments) as emulator, DApp(ipc) as dapp:
        blocked = tuple(range(2, 20))
        action = e3.DAppControlAction(9, dapp.identifier, 1, 1, e3.encode_structure(e3.PrbBlacklistControl(blocked)))
        assert dapp.ask(action).response_code == "positive"
        dapp.indications(200)  # a whole round under the block
        assert emulator.stop()[0] == 0
        controls = emulator.events("control")
    assert controls[0]["prbs"] == list(blocked)
    heard = read(tmp_path / "heard" / "heard")
    with np.load(tmp_path / "heard" / "heard.npz") as times:
        stands = times["blocked"]
    assert int(stands.any(axis=1).argmax()) == controls[0]["record"]
    assert np.array_equal(stands[-1], np.isin(np.arange(24), blocked))
    rounds = -(-len(stands) // 200)
    ue = np.tile(small.ue, (rounds, 1))[: len(stands)]
    assert np.array_equal(heard.ue, ue & ~stands)
    removed = ue & stands
    assert removed.any()
    same = (heard.samples == np.tile(small.samples, (rounds, 1, 1))[: len(stands)]).all(axis=2).reshape(-1, 24, 12)
    assert same.all(axis=2)[~removed].all()
    power = 2 * np.square(heard.samples, dtype=float).reshape(-1, 24, 24).mean(axis=2)
    assert power[removed & (heard.interferer == 0)].max() < 5 * power[~heard.ue & (heard.interferer == 0)].mean()


def test_interference_is_logged_with_its_records(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    with Process(small_path, ipc, tmp_path / "log", "--pace", "max", "--hold", "0") as emulator, DApp(ipc):
        assert emulator.process.wait(timeout=PATIENCE_S) == 0
        playing = emulator.events("playing")[0]["time_ns"]
        on, off = emulator.events("interferer_on"), emulator.events("interferer_off")
    assert [(event["record"], event["prbs"]) for event in on] == [(50, [6, 7, 8, 9]), (150, [18, 19, 20])]
    assert [(event["record"], event["prbs"]) for event in off] == [(130, [6, 7, 8, 9]), (180, [18, 19, 20])]
    assert playing <= on[0]["time_ns"] <= off[0]["time_ns"]


def test_several_dapps_each_get_everything_once(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    arguments = ("--pace", "max", "--wait-subscribers", "3")
    with (
        Process(small_path, ipc, tmp_path / "log", *arguments) as emulator,
        DApp(ipc) as first,
        DApp(ipc) as second,
        DApp(ipc, subscribe=False) as silent,
    ):
        assert not emulator.events("playing")
        with DApp(ipc) as third:
            assert len({first.identifier, second.identifier, silent.identifier, third.identifier}) == 4
            for dapp in (first, second, third):
                assert [each.timestamp for each in dapp.indications(200)] == list(range(1, 201))
        assert emulator.wait_event("done")["counters"]["indications"] == 600


def test_records_come_at_the_recorded_pace_without_drift(
    ipc: e3.Endpoints, tmp_path: Path, small_path: Path, small: Recording
) -> None:
    arguments = ("--pace", "2", "--heard", str(tmp_path / "heard"), "--hold", "0")
    with Process(small_path, ipc, tmp_path / "log", *arguments) as emulator, DApp(ipc):
        assert emulator.process.wait(timeout=PATIENCE_S) == 0
    with np.load(tmp_path / "heard" / "heard.npz") as times:
        played_ns = times["played_ns"]
    # Never before it is due, and however late single records are on a busy machine, some later one is on time again.
    late_ns = played_ns - np.arange(200) * small.period_ns / 2
    on_time_ns = late_ns[:100].min()
    assert late_ns.min() > on_time_ns - 5_000_000
    assert late_ns[150:].min() < on_time_ns + 20_000_000


def test_rubbish_is_counted_and_everything_goes_on(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    with Process(small_path, ipc, tmp_path / "log", "--pace", "max") as emulator, DApp(ipc, subscribe=False) as dapp:
        for rubbish in (b"", b"\0", b"\xff" * 200, b"\x00\x06\x00"):
            assert dapp.setup(rubbish).response_code == "negative"
        dapp.request.send_multipart([b"two", b"parts"])
        assert e3.decode(dapp.request.recv()).response_code == "negative"  # type: ignore[union-attr]
        for rubbish in (b"", b"\0", b"\xff" * 50_000):
            dapp.outward.send(rubbish)
        dapp.outward.send_multipart([b"two", b"parts"])
        assert dapp.ask(e3.ReleaseMessage(4, 77)).response_code == "negative"
        dapp.subscribe()
        assert [each.timestamp for each in dapp.indications(200)] == list(range(1, 201))
        emulator.wait_event("done")
        code, said = emulator.stop(signal.SIGINT)
        assert (code, "Traceback" in said) == (0, False)
        assert len(emulator.events("refused")) >= 10


def test_it_speaks_the_generation_and_link_of_its_options(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    codec = e3.ASN1_CODECS["G2b"]
    options = ("--e3-link", "posix", "--e3-generation", "G2b", "--no-control")
    with Process(small_path, ipc, tmp_path / "log", *options), socket.socket(socket.AF_UNIX) as setup:
        setup.settimeout(PATIENCE_S)
        setup.connect(ipc.setup.removeprefix("ipc://"))
        setup.sendall(codec.encode(e3.SetupRequest(70_000, "1.0.0", "test", "1", "twinlink")))
        (reply,) = e3.FrameReader().feed(setup.recv(65536))
    response = codec.decode(reply)
    assert isinstance(response, e3.SetupResponse)
    assert (response.request_id, response.dapp_identifier) == (70_000, 1)
    assert [function.control_identifier_list for function in response.ran_function_list or ()] == [()]


def test_a_stuck_agent_answers_no_dapp_any_more(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    good = e3.encode(e3.SetupRequest(1, "1.0.0", "test", "1", "twinlink"))
    with Process(small_path, ipc, tmp_path / "log", "--stuck") as emulator, DApp(ipc, subscribe=False) as dapp:
        dapp.request.send(b"unreadable")
        wait_until(lambda: emulator.events("refused"))
        with zmq.Context() as context, context.socket(zmq.REQ) as other:
            other.linger = 0
            other.connect(ipc.setup)
            other.send(good)
            assert not other.poll(300)
        assert emulator.stop()[0] == 0


@pytest.mark.parametrize(("n_prbs", "fft_size"), [(51, 1024), (106, 1536), (273, 4096)])
def test_carriers_of_every_size_are_played(ipc: e3.Endpoints, tmp_path: Path, n_prbs: int, fft_size: int) -> None:
    path, samples = foreign(tmp_path, n_prbs)
    with Process(path, ipc, tmp_path / "log", "--pace", "max") as emulator, DApp(ipc) as dapp:
        received = dapp.indications(len(samples))
        assert {each.sample_count for each in received} == {fft_size}
        assert len(received[0].iq_samples) == 4 * fft_size
        assert np.array_equal(natural(received, n_prbs), samples)
        assert emulator.stop()[0] == 0


def test_fft_size_is_checked() -> None:
    assert choose_fft_size(106, 2048) == 2048
    with pytest.raises(ConfigurationError, match="do not fit an FFT of 1024"):
        choose_fft_size(106, 1024)
    with pytest.raises(ConfigurationError, match="at most 16384"):
        choose_fft_size(273, 8192)


def test_a_second_emulator_is_refused_and_the_first_goes_on(
    ipc: e3.Endpoints, tmp_path: Path, small_path: Path
) -> None:
    for endpoints in (ipc, free_tcp()):
        with Process(small_path, endpoints, tmp_path / "first", "--pace", "max"):
            with Process(small_path, endpoints, tmp_path / "second") as second:
                code, said = second.stop()
            assert code == 2
            assert "is another gNB or emulator running" in said or "another gNB or emulator is running" in said
            assert "Traceback" not in said
            with DApp(endpoints) as dapp:
                assert len(dapp.indications(200)) == 200
        (tmp_path / "first").unlink()


def test_where_it_may_not_make_sockets_it_says_so(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    nobody_may = e3.Endpoints("ipc:///sys/setup", ipc.to_dapp, ipc.from_dapp)
    with Process(small_path, nobody_may, tmp_path / "log") as emulator:
        code, said = emulator.stop()
    assert code == 2
    assert "ipc:///sys/setup cannot be bound" in said
    assert said.rstrip().endswith("run as a user with that permission")


def test_no_socket_files_are_left_behind(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    paths = [Path(endpoint.removeprefix("ipc://")) for endpoint in (ipc.setup, ipc.to_dapp, ipc.from_dapp)]
    with Process(small_path, ipc, tmp_path / "log") as emulator, DApp(ipc):
        assert all(path.is_socket() for path in paths)
        emulator.stop()
    assert not any(path.exists() for path in paths)


def test_a_socket_file_left_behind_is_no_obstacle(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    with Process(small_path, ipc, tmp_path / "log") as killed:
        killed.process.kill()
    (tmp_path / "log").unlink()
    with Process(small_path, ipc, tmp_path / "log", "--pace", "max"), DApp(ipc) as dapp:
        assert len(dapp.indications(200)) == 200


def test_flat_out_waits_for_the_slowest_dapp_and_loses_nothing(
    ipc: e3.Endpoints, tmp_path: Path, small_path: Path
) -> None:
    arguments = ("--pace", "max", "--loop", "0")
    with Process(small_path, ipc, tmp_path / "log", *arguments) as emulator, DApp(ipc, subscribe=False) as dapp:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        lazy = context.socket(zmq.SUB)
        lazy.set_hwm(10)
        lazy.subscribe(b"")
        lazy.connect(ipc.to_dapp)
        dapp.subscribe()
        while dapp.receive(1) is not None:  # until the queue of the one that does not read is full
            pass
        context.destroy(linger=0)
        assert dapp.receive(PATIENCE_S) is not None, "it did not go on when the one that does not read had gone"
        assert emulator.stop()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--pace", "fast"], 3, "factor above 0"),
        (["--loop", "-1"], 3, "--loop"),
        (["--e3", "sctp"], 3, "--e3"),
        (["--recording", "/nonexistent/x.sigmf-meta"], 2, "cannot be read"),
        (["--fft-size", "16"], 3, "do not fit an FFT of 16"),
        (["--hold", "nan"], 3, "--hold"),
        (["--log", "/nonexistent/log"], 2, "/nonexistent/log: No such file or directory; check the path"),
        (["--setup", "nonsense"], 3, "--setup: 'nonsense': an endpoint reads ipc:///path or tcp://address:port"),
        (["--to-dapp", "tcp://127.0.0.1:99999"], 3, "--to-dapp"),
        (["--from-dapp", "ipc://"], 3, "--from-dapp"),
    ],
)
def test_what_cannot_be_is_said_in_words(
    arguments: list[str], code: int, said: str, small_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--recording", str(small_path), *arguments]) == code
    assert said in capsys.readouterr().err


def test_the_log_may_go_into_the_folder_that_is_made(ipc: e3.Endpoints, small_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--recording", str(small_path), "--pace", "max", "--heard", str(out), "--log", str(out / "log")]
    arguments += ["--setup", ipc.setup, "--to-dapp", ipc.to_dapp, "--from-dapp", ipc.from_dapp]
    assert command.main([*arguments, "--hold", "0", "--wait-subscribers", "0"]) == 0
    assert {path.name for path in out.iterdir()} == {"heard.npz", "heard.sigmf-data", "heard.sigmf-meta", "log"}


def test_a_recording_without_known_annotations_is_reported(ipc: e3.Endpoints, tmp_path: Path, small_path: Path) -> None:
    metadata = small_path.read_text().replace('"interferer"', '"jammer"').replace('"ue"', '"UE"')
    (tmp_path / "other.sigmf-meta").write_text(metadata)
    (tmp_path / "other.sigmf-data").symlink_to(small_path.with_suffix(".sigmf-data"))
    with Process(tmp_path / "other.sigmf-meta", ipc, tmp_path / "log") as emulator:
        emulator.wait_event("no_interferer")
        emulator.wait_event("no_ue")


def test_an_impossible_endpoint_is_not_put_down_to_another_emulator(
    ipc: e3.Endpoints, tmp_path: Path, small_path: Path
) -> None:
    endpoint = "tcp://192.0.2.1:9990"
    with Process(small_path, replace(ipc, setup=endpoint), tmp_path / "log") as emulator:
        code, said = emulator.stop()
    assert code == 2
    assert f"the E3 endpoint {endpoint} cannot be bound" in said
    assert "an endpoint reads ipc:///path or tcp://address:port" in said
    assert "another gNB" not in said
