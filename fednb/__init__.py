"""FedNB: five federated-learning papers, derived, implemented and reproduced in notebooks."""

from pathlib import Path

__version__ = "0.4.0"

PACKAGE = Path(__file__).resolve().parent
# or a wheel, which has a copy of what is below
CHECKOUT = (PACKAGE.parent / "notebooks" / "00_foundations.ipynb").exists()
# notebooks, sweeps, the papers' printed numbers
ROOT = PACKAGE.parent if CHECKOUT else PACKAGE / "project"


def home() -> Path:
    """Return where data and results land: the checkout, or with a wheel the current folder."""
    return ROOT if CHECKOUT else Path.cwd()
