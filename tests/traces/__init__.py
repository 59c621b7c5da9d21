"""Golden traces of the protocol: what a node is given and must do, as files that any implementation can run."""
