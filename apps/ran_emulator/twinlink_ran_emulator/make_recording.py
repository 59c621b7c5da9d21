"""Make a recording of a gNB's uplink spectrum with its ground truth; the same arguments give the same octets.

Every record is one OFDM symbol: the UEs' symbols, each through its own fading channel, an intermittent interferer, and
receiver noise, rounded to int16.  ``python -m twinlink_ran_emulator.make_recording --out FILE`` writes
FILE.sigmf-data and FILE.sigmf-meta.
"""

import argparse
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlink.appkit import outputs
from twinlink.appkit.console import DONE, guarded
from twinlink.appkit.options import Parser
from twinlink.errors import ConfigurationError
from twinlink.spectrum import SUBCARRIERS_PER_PRB

from . import metadata
from .channel import Profile, TappedDelayLine
from .interferer import Episode, draw_episodes
from .scheduler import Grant, schedule
from .truth import Area, Grid

CHUNK = 256  # records per step, which bounds the memory
_REQUIRED_SNR_DB = {2: 9.0, 4: 14.0, 6: 18.0}  # mean SNR of a UE under power control, by modulation order


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of a recording.

    Attributes:
        n_prbs: PRBs of the carrier.
        scs_khz: subcarrier spacing in kHz.
        centre_hz: carrier centre frequency in Hz.
        seconds: length.
        period_ms: time between records in ms.
        n_ues: number of UEs.
        noise_rms_lsb: RMS amplitude of the complex receiver noise on a subcarrier, in least significant bits.
        inr_db: interference to noise ratio of the first episode, if `episodes` is None.
        episodes: of the interferer; None: drawn from the seed.
        seed: of everything random.
    """

    n_prbs: int = 106
    scs_khz: int = 30
    centre_hz: float = 3.6192e9
    seconds: float = 5.5
    period_ms: float = 10.0
    n_ues: int = 5
    noise_rms_lsb: float = 4.0
    inr_db: float = 30.0
    episodes: tuple[Episode, ...] | None = None
    seed: int = 1

    @property
    def grid(self) -> Grid:
        """The layout of the recording."""
        return Grid(round(self.seconds * 1000 / self.period_ms), self.n_prbs, self.scs_khz * 1e3, self.centre_hz)


@dataclass(frozen=True, slots=True)
class Made:
    """A recording in memory.

    Attributes:
        samples: int16, shape ``(n_records, n_prbs * 12, 2)``, columns I and Q, lowest frequency first.
        areas: the ground truth.
        clipped: number of I or Q values that were clipped to int16.
    """

    samples: NDArray[np.int16]
    areas: tuple[Area, ...]
    clipped: int


@dataclass(frozen=True, slots=True)
class _Ue:
    """A UE: its channel and amplitude."""

    channel: TappedDelayLine
    power_offset_db: float


def make(settings: Settings) -> Made:
    """Compute a recording."""
    grid = settings.grid
    # One random stream per purpose, so that another interferer does not change the UEs and the noise.
    streams = [np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(settings.seed).spawn(5)]
    schedule_rng, channel_rng, symbol_rng, interferer_rng, noise_rng = streams
    grants = schedule(schedule_rng, settings.n_ues, grid.n_records, grid.n_prbs)
    ues = [_draw_ue(channel_rng, settings.centre_hz) for _ in range(settings.n_ues)]
    episodes = settings.episodes
    if episodes is None:
        episodes = tuple(draw_episodes(interferer_rng, settings.seconds, grid.n_prbs, settings.inr_db))
    _check_episodes(episodes, grid.n_prbs)

    samples = np.empty((grid.n_records, grid.bins, 2), np.int16)
    clipped = 0
    for first in range(0, grid.n_records, CHUNK):
        records = range(first, min(first + CHUNK, grid.n_records))
        signal = _gaussian(noise_rng, (len(records), grid.bins), settings.noise_rms_lsb)
        _add_ues(signal, records, settings, grants, ues, rng=symbol_rng)
        _add_interferer(signal, records, settings, episodes, interferer_rng)
        levels = np.rint(np.stack((signal.real, signal.imag), axis=-1))
        clipped += int(np.count_nonzero((levels < -32768) | (levels > 32767)))
        samples[records.start : records.stop] = np.clip(levels, -32768, 32767).astype(np.int16)
    areas = (*_ue_areas(grants), *_interferer_areas(episodes, settings.period_ms, grid.n_records))
    return Made(samples, areas, clipped)


def write(path: Path, settings: Settings) -> Made:
    """Make a recording and write ``path`` with the suffixes .sigmf-data and .sigmf-meta."""
    made = make(settings)
    data = made.samples.astype("<i2", copy=False).tobytes()
    meta_path, data_path = metadata.pair(path)
    metadata.write(
        meta_path,
        metadata.describe(
            settings.grid,
            made.areas,
            settings.period_ms,
            extra={
                "core:sha512": hashlib.sha512(data).hexdigest(),
                "core:description": "5G NR uplink after the gNB's FFT, one OFDM symbol a record, natural PRB order; "
                "synthetic: several UEs over 3GPP TR 38.901 TDL channels, receiver noise, and an interferer that comes "
                "and goes",
                "core:recorder": "twinlink_ran_emulator.make_recording",
                "core:license": "https://www.apache.org/licenses/LICENSE-2.0",
                "twinlink:seed": settings.seed,
                "twinlink:noise_rms_lsb": settings.noise_rms_lsb,
                "twinlink:clipped_values": made.clipped,
            },
        ),
    )
    data_path.write_bytes(data)
    return made


def _draw_ue(rng: np.random.Generator, centre_hz: float) -> _Ue:
    """A UE: pedestrian to urban vehicle (3 to 50 km/h), short to nominal delay spread (TR 38.901 table 7.7.3-1)."""
    profile: Profile = "TDL-A" if rng.random() < 0.5 else "TDL-C"
    doppler_hz = rng.uniform(3, 50) / 3.6 * centre_hz / 299_792_458
    return _Ue(TappedDelayLine.draw(rng, profile, rng.uniform(30e-9, 200e-9), doppler_hz), rng.uniform(-1.5, 1.5))


def _add_ues(
    signal: NDArray[np.complex128],
    records: range,
    settings: Settings,
    grants: list[Grant],
    ues: list[_Ue],
    *,
    rng: np.random.Generator,
) -> None:
    """Add the symbols of every grant, through its UE's channel, to the records of this chunk."""
    grid = settings.grid
    frequencies_hz = (np.arange(grid.bins) - grid.bins // 2) * grid.scs_hz
    for grant in grants:
        first, end = max(grant.first_record, records.start), min(grant.end_record, records.stop)
        if first >= end:
            continue
        bins = slice(grant.first_prb * SUBCARRIERS_PER_PRB, (grant.first_prb + grant.n_prbs) * SUBCARRIERS_PER_PRB)
        ue = ues[grant.ue]
        snr_db = _REQUIRED_SNR_DB[grant.bits_per_symbol] + ue.power_offset_db
        amplitude = settings.noise_rms_lsb * 10 ** (snr_db / 20)
        times_s = np.arange(first, end) * settings.period_ms / 1000
        gains = ue.channel.response(times_s, frequencies_hz[bins])
        signal[first - records.start : end - records.start, bins] += (
            amplitude * gains * _qam(rng, gains.shape, grant.bits_per_symbol)
        )


def _add_interferer(
    signal: NDArray[np.complex128],
    records: range,
    settings: Settings,
    episodes: tuple[Episode, ...],
    rng: np.random.Generator,
) -> None:
    for episode in episodes:
        heard = episode.records(settings.period_ms, settings.grid.n_records)
        first, end = max(heard.start, records.start), min(heard.stop, records.stop)
        if first >= end:
            continue
        bins = slice(
            episode.first_prb * SUBCARRIERS_PER_PRB, (episode.first_prb + episode.n_prbs) * SUBCARRIERS_PER_PRB
        )
        shape = (end - first, episode.n_prbs * SUBCARRIERS_PER_PRB)
        signal[first - records.start : end - records.start, bins] += _gaussian(
            rng, shape, settings.noise_rms_lsb * 10 ** (episode.inr_db / 20)
        )


def _gaussian(rng: np.random.Generator, shape: tuple[int, int], rms: float) -> NDArray[np.complex128]:
    """Circular complex Gaussian noise of the given RMS amplitude."""
    parts = rng.standard_normal((*shape, 2))
    noise: NDArray[np.complex128] = (parts[..., 0] + 1j * parts[..., 1]) * (rms / np.sqrt(2))
    return noise


def _qam(rng: np.random.Generator, shape: tuple[int, ...], bits_per_symbol: int) -> NDArray[np.complex128]:
    """Random square QAM symbols of mean power 1 (the constellations of 3GPP TS 38.211 clause 5.1, unlabelled)."""
    side = 2 ** (bits_per_symbol // 2)
    levels = 2 * rng.integers(0, side, (2, *shape)) - (side - 1)
    symbols: NDArray[np.complex128] = (levels[0] + 1j * levels[1]) / np.sqrt(2 * (side**2 - 1) / 3)
    return symbols


def _ue_areas(grants: list[Grant]) -> list[Area]:
    names = {2: "QPSK", 4: "16QAM", 6: "64QAM"}
    return [
        Area(
            "ue",
            grant.first_record,
            grant.end_record,
            grant.first_prb,
            grant.first_prb + grant.n_prbs,
            f"UE {grant.ue} {names[grant.bits_per_symbol]}",
        )
        for grant in grants
    ]


def _interferer_areas(episodes: tuple[Episode, ...], period_ms: float, n_records: int) -> list[Area]:
    areas = []
    for episode in episodes:
        heard = episode.records(period_ms, n_records)
        if len(heard):
            end_prb = episode.first_prb + episode.n_prbs
            comment = f"INR {episode.inr_db:g} dB"
            areas.append(Area("interferer", heard.start, heard.stop, episode.first_prb, end_prb, comment))
    return areas


def _check_episodes(episodes: tuple[Episode, ...], n_prbs: int) -> None:
    for episode in episodes:
        if episode.n_prbs < 1 or episode.first_prb < 0 or episode.first_prb + episode.n_prbs > n_prbs:
            raise ValueError(
                f"an interferer on PRBs {episode.first_prb} to {episode.first_prb + episode.n_prbs - 1} does not fit a "
                f"carrier of {n_prbs} PRBs (0 to {n_prbs - 1})"
            )
        if episode.start_s < 0 or episode.duration_s <= 0:
            raise ValueError("an interferer starts at 0 s or later and lasts for more than 0 s")


def _parser() -> Parser:
    default = Settings()
    parser = Parser(
        prog="python -m twinlink_ran_emulator.make_recording",
        description="Make a recording of a gNB's uplink spectrum with its ground truth (SigMF, docs/ran-emulator.md).",
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write; .sigmf-data and .sigmf-meta are added")
    outputs.add_option(parser)
    parser.add_argument("--n-prbs", type=int, default=default.n_prbs, help="PRBs of the carrier (%(default)s)")
    parser.add_argument("--scs-khz", type=int, default=default.scs_khz, help="subcarrier spacing (%(default)s)")
    parser.add_argument("--centre-hz", type=float, default=default.centre_hz, help="carrier centre (%(default)s)")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="length (%(default)s)")
    parser.add_argument("--period-ms", type=float, default=default.period_ms, help="between records (%(default)s)")
    parser.add_argument("--ues", type=int, default=default.n_ues, help="number of UEs (%(default)s)")
    parser.add_argument("--noise-lsb", type=float, default=default.noise_rms_lsb, help="RMS noise (%(default)s)")
    parser.add_argument("--inr-db", type=float, default=default.inr_db, help="INR of the first episode (%(default)s)")
    parser.add_argument(
        "--episode",
        action="append",
        metavar="START:DURATION:PRB:COUNT:INR",
        help="an appearance of the interferer (s, s, first PRB, PRBs, dB); repeat for more; none given: from the seed",
    )
    parser.add_argument("--seed", type=int, default=default.seed, help="of everything random (%(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 0 done, 2 failed, 3 bad arguments."""
    return guarded("make_recording", lambda: _run(_parser().parse_args(argv)))


def _run(given: argparse.Namespace) -> int:
    try:
        if not 1 <= given.n_prbs <= 273 or not 0 <= given.ues <= 64 or given.seed < 0:
            raise ValueError("--n-prbs goes from 1 to 273, --ues from 0 to 64, --seed from 0")
        if min(given.scs_khz, given.seconds, given.period_ms, given.noise_lsb) <= 0:
            raise ValueError("--scs-khz, --seconds, --period-ms and --noise-lsb must be above 0")
        episodes = None if given.episode is None else tuple(Episode.parse(text) for text in given.episode)
        settings = Settings(
            n_prbs=given.n_prbs,
            scs_khz=given.scs_khz,
            centre_hz=given.centre_hz,
            seconds=given.seconds,
            period_ms=given.period_ms,
            n_ues=given.ues,
            noise_rms_lsb=given.noise_lsb,
            inr_db=given.inr_db,
            episodes=episodes,
            seed=given.seed,
        )
        outputs.refuse_existing("--out", metadata.pair(given.out), given.overwrite)
        made = write(given.out, settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    print(f"{given.out}: {len(made.samples)} records of {given.n_prbs} PRBs, {made.clipped} values clipped")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
