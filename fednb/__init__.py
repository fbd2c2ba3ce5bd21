"""FedNB: five federated-learning papers, derived, implemented and reproduced in notebooks."""

from pathlib import Path

__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
CHECKOUT = (_HERE.parent / "notebooks" / "00_foundations.ipynb").exists()  # or a wheel, which has a copy of what is below
ROOT = _HERE.parent if CHECKOUT else _HERE / "project"  # notebooks, sweeps, the papers' printed numbers


def home() -> Path:
    """Where data and results land: the checkout, or the folder where one works if the package was installed by itself."""
    return ROOT if CHECKOUT else Path.cwd()
