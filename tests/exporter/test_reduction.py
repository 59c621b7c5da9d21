"""What is sent of each slot, from the command line."""

import pytest
from twinlink_exporter.__main__ import make_parser
from twinlink_exporter.reduction import Reduction, plan_of_reduction, reduction_of

from twinlink.errors import ConfigurationError
from twinlink.slots import ALL_SYMBOLS, Content


def reduction(*arguments: str) -> Reduction:
    return reduction_of(make_parser().parse_args(arguments))


def test_by_default_everything_of_the_first_antenna_is_sent() -> None:
    assert reduction() == Reduction(1, ALL_SYMBOLS, (0,), 0, None, Content.IQ, False, False, 1, 1 / 2048)


def test_options_are_read() -> None:
    given = "--every 20 --symbols 3,5-6 --antennas 0,2 --prbs 20-39 --content power-db --slot-mean --compress"
    read = reduction(*given.split(), "--slots-per-message", "4", "--beta", "1/128")
    assert read == Reduction(20, 0b1101000, (0, 2), 20, 20, Content.POWER_DB, True, True, 4, 1 / 128)
    assert plan_of_reduction(read) == (
        "of slots in shared memory: power in dB of one of 20 slots, symbols 3,5-6, antennas 0,2, PRBs 20-39, "
        "4 slot(s) a message, mean over the symbols, compressed; beta 0.0078125"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slot-mean",), "--content power"),
        (("--prbs", "100-106"), "PRBs 0-105"),
        (("--n-prbs", "51", "--prbs", "51"), "PRBs 0-50"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        reduction(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [("--symbols", "14"), ("--symbols", ""), ("--symbols", "a"), ("--antennas", "16"), ("--prbs", "9-3"),
     ("--prbs", "x"), ("--every", "0"), ("--slots-per-message", "65"), ("--beta", "0"), ("--beta", "1/0"),
     ("--content", "x")],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(arguments)
