"""``python -m fednb COMMAND``: see `fednb.cli`."""

import sys

from fednb.cli import main

if __name__ == "__main__":
    sys.exit(main())
