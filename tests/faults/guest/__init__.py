"""Debian's own kernel in a virtual machine, for what this machine's kernel may lack: netem, and a clock to step."""
