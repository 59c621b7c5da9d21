"""Published results that are shown beside ours.

They were measured on other hosts, over other networks and with other programs.  They give an order of magnitude, not a
comparison: that takes one run in which everything is measured in turn (the baselines of a sweep).
"""

from dataclasses import dataclass

PAPER = (
    "Garufi et al., “Design and Evaluation of a Bidirectional Communication Channel for O-RAN Digital Twins”, 2026, "
    "Table I"
)
PAPER_SETTING = "two hosts, NTP, 100 messages a point, mean"


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of the paper's Table I.

    Attributes:
        latency_ms: mean one-way delay.  The two directions of one path differ by about 0.36 ms while their RTTs are
            alike, so these hold a clock error or path asymmetry of about 0.18 ms, several times the printed interval.
        rtt_ms: mean round-trip time.
        throughput_mb_s: payload / latency; MB = 10^6 octets.
    """

    latency_ms: float
    rtt_ms: float
    throughput_mb_s: float


def _rows(direction: str, subject: str, *figures: tuple[float, float, float]) -> dict[tuple[str, str, int], Row]:
    payloads = (100, 1024, 10240, 102400, 1048576)
    return {(subject, direction, octets): Row(*each) for octets, each in zip(payloads, figures, strict=True)}


# (subject, direction, payload octets) -> figures
TABLE_I: dict[tuple[str, str, int], Row] = (
    _rows("rw-dt", "zenoh",
          (0.89, 2.00, 0.12), (0.84, 2.03, 1.22), (0.89, 2.08, 11.47), (2.26, 3.35, 46.58), (12.57, 13.75, 83.42))
    | _rows("rw-dt", "zeromq",
            (0.87, 2.02, 0.12), (0.89, 2.04, 1.15), (0.97, 2.11, 10.65), (2.12, 3.23, 48.59), (12.72, 13.81, 82.44))
    | _rows("dt-rw", "zenoh",
            (1.23, 1.98, 0.08), (1.26, 2.04, 0.81), (1.30, 1.98, 7.86), (1.92, 3.19, 54.33), (9.30, 10.02, 112.92))
    | _rows("dt-rw", "zeromq",
            (1.21, 1.97, 0.08), (1.24, 2.00, 0.83), (1.34, 1.94, 7.67), (1.85, 2.94, 55.83), (9.38, 10.33, 111.88))
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """A published measurement of MQTT.

    Attributes:
        label: for a legend.
        quantity: what was measured, in the source's sense.
        points: (payload octets, ms); the payload None where the source gives one figure for all.
        setting: where and how.
        source: the reference to cite.
    """

    label: str
    quantity: str
    points: tuple[tuple[int | None, float], ...]
    setting: str
    source: str


# Checked against the sources: Table I of Rocha et al.; the abstract of TwiNet; the table of single-machine latencies of
# Liang et al.
MQTT = (
    Context(
        "MQTT QoS 0, 200 km (Rocha et al.)",
        "mean delay from publishing to the client's own subscription, so over the path twice",
        ((100, 6.08), (10_000, 8.62), (100_000, 35.60)),
        "client in São Carlos, broker (hbmqtt) on a cloud server in São Paulo, about 200 km away; 10,000 messages, 5 s "
        "apart; Python. The paper's Table II has 33.80 ms with 16 B on the same path",
        "Rocha, Sestito, Dias, Turcato, Brandão, “Performance comparison between OPC UA and MQTT for data exchange”, "
        "Table I, mqtt_0",
    ),
    Context(
        "MQTT, TwiNet (2024)",
        "mean latency of a data transfer, payload not stated",
        ((None, 14.0),),
        "real network to digital twin on Colosseum, through a broker",
        "Robinson, Lacava, Johari, Cuomo, Melodia, “TwiNet: Connecting Real World Networks to their Digital Twins "
        "Through a Live Bidirectional Link”, arXiv:2411.03503, 2024",
    ),
    Context(
        "MQTT C client, RTT/2 (Liang 2023)",
        "median of half the RTT",
        ((64, 0.027),),
        "one host (Ryzen 5800X), no network, client and broker in C",
        "Liang, Yuan, Lin, “A Performance Study on the Throughput and Latency of Zenoh, MQTT, Kafka, and DDS”, "
        "arXiv:2303.09419, 2023",
    ),
)


def row(subject: str, direction: str, octets: int) -> Row | None:
    """The paper's figures for a cell, None where it has none.  It knows `zenoh` and `zeromq` only."""
    return TABLE_I.get((subject, direction, octets))
