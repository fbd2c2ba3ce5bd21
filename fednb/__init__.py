"""FedNB: five federated-learning papers, derived, implemented and reproduced in notebooks."""

from pathlib import Path

__version__ = "0.1.0"

ROOT = Path(__file__).resolve().parents[1]  # the repository
