import pytest

from twinlink.appkit.console import FAILED, guarded


def test_a_lack_of_memory_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded("twinlink report", lambda: len(bytearray(2**62))) == FAILED
    assert "there is not enough memory" in capsys.readouterr().err
