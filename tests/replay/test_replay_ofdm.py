import numpy as np
import pytest
from gnuradio import blocks, gr
from numpy.typing import NDArray
from twinlink_replay.blocks import Retransmit
from twinlink_replay.blocks.ofdm import SYMBOLS_PER_SLOT, bins_of, cyclic_prefix, modulate

from twinlink.testing import wait_until

RNG = np.random.default_rng(5)


def subcarriers(n_prbs: int) -> NDArray[np.complex64]:
    return (RNG.normal(size=n_prbs * 12) + 1j * RNG.normal(size=n_prbs * 12)).astype(np.complex64)


@pytest.mark.parametrize("scs_hz", [15_000, 30_000, 60_000, 120_000])
@pytest.mark.parametrize("fft_size", [1024, 1536, 2048, 4096])
def test_a_subframe_lasts_1_ms(fft_size: int, scs_hz: int) -> None:
    symbols = SYMBOLS_PER_SLOT * scs_hz // 15_000
    samples = sum(fft_size + cyclic_prefix(fft_size, scs_hz, symbol) for symbol in range(symbols))
    assert samples == fft_size * scs_hz // 1000


def test_lengths_of_ts_38_211() -> None:
    assert [cyclic_prefix(2048, 30_000, symbol) for symbol in (0, 1, 13, 14, 15)] == [176, 144, 144, 176, 144]
    assert cyclic_prefix(2048, 15_000, 7) == 160


@pytest.mark.parametrize(("n_prbs", "fft_size"), [(51, 1024), (106, 1536), (106, 2048), (273, 4096)])
def test_fft_gives_the_subcarriers_back(n_prbs: int, fft_size: int) -> None:
    sent = subcarriers(n_prbs)
    samples = modulate(sent, fft_size, 30_000, 0, scale=0.5)
    prefix = cyclic_prefix(fft_size, 30_000, 0)
    np.testing.assert_array_equal(samples[:prefix], samples[-prefix:])
    bins = np.fft.fft(samples[prefix:], norm="ortho") / 0.5
    np.testing.assert_allclose(bins[bins_of(n_prbs, fft_size)], sent, atol=1e-5)
    unused = np.setdiff1d(np.arange(fft_size), bins_of(n_prbs, fft_size))
    assert np.abs(bins[unused]).max() < 1e-5


def test_the_centre_is_subcarrier_6n() -> None:
    assert bins_of(106, 2048)[106 * 6] == 0
    assert bins_of(51, 1024)[0] == 1024 - 306


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="more than an FFT of 1024"):
        Retransmit(106, 1024)
    with pytest.raises(ValueError, match="multiple of 128"):
        Retransmit(51, 1000)
    with pytest.raises(ValueError, match="subcarrier spacing"):
        Retransmit(51, 1024, 31_000)


def test_block_in_a_flowgraph() -> None:
    sent = np.concatenate([subcarriers(106) for _ in range(30)])
    top = gr.top_block()
    source = blocks.vector_source_c(sent.tolist(), False)
    sink = blocks.vector_sink_c()
    top.connect(source, Retransmit(106, 2048, 30_000, scale=1.0), sink)
    top.start()
    samples = sum(2048 + cyclic_prefix(2048, 30_000, symbol % 28) for symbol in range(30))
    wait_until(lambda: len(sink.data()) >= samples)
    top.stop()
    top.wait()
    got = np.array(sink.data(), np.complex64)
    assert len(got) == samples
    at = 0
    for symbol in range(30):
        prefix = cyclic_prefix(2048, 30_000, symbol % 28)
        bins = np.fft.fft(got[at + prefix : at + prefix + 2048], norm="ortho")[bins_of(106, 2048)]
        np.testing.assert_allclose(bins, sent[symbol * 1272 : (symbol + 1) * 1272], atol=1e-4)
        at += prefix + 2048
    assert [tag.offset for tag in sink.tags()][:2] == [0, 2048 + 176]
