"""Published experiments, made again here: a data file for each (`data/NAME.toml`), run by a module for each kind.

`description` reads a data file, `measuring` runs it, `folder` writes what it leaves: results.json, raw records, the
table with the published figures beside ours, figures, and what was not the same.
"""

NAMES = (
    "table-1",
    "octets",
    "loopback",
    "regions",
    "clients",
    "hub-rtt",
    "hub-direct",
    "hub-resources",
    "hub-bandwidth",
    "hub-sampling",
    "plc-response",
    "plc-cycles",
    "plc-pair",
    "pubsub-cycle",
    "pubsub-sizes",
    "pubsub-qdiscs",
    "pubsub-bridge",
)
