"""``python -m fednb_lab COMMAND``, and the command ``fednb``: see `fednb_lab.cli`."""

import sys

from fednb_lab.cli import main


def run() -> None:
    """Run the command, as ``pip install`` puts it on the path."""
    sys.exit(main())


if __name__ == "__main__":
    run()
