"""FedNB: five federated-learning papers, derived, implemented and reproduced in notebooks."""

__version__ = "0.1.0"
