"""``python -m twinlink``: the `twinlink` command."""

import sys

from .cli import main

sys.exit(main())
