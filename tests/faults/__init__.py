"""The fault lab: two nodes in network namespaces, faults between and inside them, ledgers, and a checker.

`python -m tests.faults.lab` runs it; docs/reliability.md has method and results.
"""
