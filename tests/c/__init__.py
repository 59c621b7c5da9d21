"""The C node of `c/`: its traces, frames, threads and faults, and its figures."""
