"""The instrument: measures a link from beside it.

Sweeps, experiments, clocks and MGEN's traffic; a run's records become results in `twinlink_results`.  It uses the
library as any program does, and nothing imports it.
"""
