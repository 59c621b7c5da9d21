"""Prints the folder for GRC_BLOCKS_PATH."""

from . import PATH

if __name__ == "__main__":
    print(PATH)
