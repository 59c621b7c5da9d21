"""What people type in their first hour, and the answer that leads on."""

import shlex

import pytest

from twinlink import cli

BAD_ARGUMENTS = 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ping 10.0.0.5 --port 7447", "unknown argument --port; the port follows its host, as in 10.0.0.5:7447"),
        ("ping 10.0.0.5 7447", "unknown argument 7447; the port follows its host, as in 10.0.0.5:7447"),
        ("ping tcp://10.0.0.5:7447", "write 10.0.0.5:7447"),
        ("ping 0.0.0.0", "connect to the name or an address of that host, 127.0.0.1 if it is this one"),
        ("ping 10.0.0.5 --timeout 5s", "'5s' is not a number; give the number alone, in the unit that --help states"),
        ("ping 10.0.0.5 --transport 0mq", "did you mean zeromq?"),
        ("ping 10.0.0.5 --transport ws", "did you mean websocket?"),
        ("pong --listen 7447", "the host is missing; write 127.0.0.1:7447, or 0.0.0.0:7447"),
        ("pong --listen *:7447", "write 0.0.0.0:7447 for every address of this host"),
        ("--transport zenoh ping 10.0.0.5", "--transport stands before the command: options follow it"),
        ("publish hello", "no command is called 'publish'; did you mean pub?"),
        ("exporter --n-prbs 51", "no command is called 'exporter'; that is a program of its own: twinlink-exporter"),
        ("sub '*'", "'*' is no host; the host comes first: `twinlink sub 10.0.0.5 '*'`"),
        ("sub 10.0.0.5 /spectrum", "no name of a flow has '/', as flows have no levels; '*' stands for all flows"),
        ("sub 10.0.0.5 'cell/**'", "no name of a flow has '/'"),
        ("sub 10.0.0.5 7450", "7450 looks like a port, which follows its host: 10.0.0.5:7450"),
        ("sub -1", "endpoint '-1' is not of the form host or host:port"),
        ("echo spectrum", "no command is called 'echo'; did you mean sub?"),
        ("iperf3 10.0.0.5", "did you mean bench?"),
        ("pub 10.0.0.5 --count 3", "10.0.0.5 is no file; the peer's address follows --connect: --connect 10.0.0.5"),
        ("pub twin:7447 hello", "--connect twin:7447"),
        ("ping 10.0.0.5 10.0.0.6", "unknown argument 10.0.0.6\n"),
        ("top http://127.0.0.1:9464/metrics", "write 127.0.0.1:9464"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(line: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(line)) == BAD_ARGUMENTS
    assert says in capfd.readouterr().err


def test_a_text_in_place_of_a_file_is_answered_with_the_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pub", "hello"]) == 2
    assert "hello: No such file or directory; check the path, or send a text: echo TEXT |" in capfd.readouterr().err


@pytest.mark.parametrize("line", ["help", "help ping"])
def test_help_is_a_word_too(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 0
    assert "usage: twinlink" in capfd.readouterr().out
