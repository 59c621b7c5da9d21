"""What a link shares with its process: signals, exit and fork, memory, control groups, name resolution, ports."""
