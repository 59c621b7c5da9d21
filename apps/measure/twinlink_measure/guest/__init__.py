"""Debian 12's kernel in a virtual machine, for what this kernel may lack: queueing disciplines, and a clock to step.

`packages` finds qemu and the kernel, or downloads them into a cache; `initramfs` makes the first file system;
`machine` boots it, runs one command, and returns its exit code.
"""
