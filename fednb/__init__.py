"""FedNB: five federated-learning papers, derived, implemented and reproduced in notebooks."""

from pathlib import Path

__version__ = "0.3.0"

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = (
    PACKAGE.parent / "notebooks" / "00_foundations.ipynb"
).exists()  # or a wheel, which has a copy of what is below
ROOT = (
    PACKAGE.parent if CHECKOUT else PACKAGE / "project"
)  # notebooks, sweeps, the papers' printed numbers


def home() -> Path:
    """Where data and results land: the checkout, or of an installed package the folder where one
    works.
    """
    return ROOT if CHECKOUT else Path.cwd()
