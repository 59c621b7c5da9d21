"""What-if: policies are tried in a model of the cell before one is asked of the gNB (docs/what-if.md).

    Heard -> fit -> Cell -> draw -> Futures -> try_policies -> Trial
    what the twin heard     the model, ahead of time        harm, capacity, what leaves and what is refused

All of it is a function of its arguments, without I/O, clock and threads; the same seed gives the same answer.
"""
