"""Prints what GRC_BLOCKS_PATH must hold."""

from . import PATH

if __name__ == "__main__":
    print(PATH)
