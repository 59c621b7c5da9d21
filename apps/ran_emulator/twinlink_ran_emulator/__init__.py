"""The E3 side of a gNB without a gNB: plays recorded uplink spectrum to dApps and obeys their PRB blocks."""
