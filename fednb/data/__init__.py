"""Data sets as tensors in memory: uint8 images and int64 labels, prepared as the papers' code prepares them.

`load` finds any known set in the layouts that `data/README.md` describes, `register` adds one's own. Two need no download.
"""

from importlib import import_module
from typing import Any

from fednb.data.catalog import NAMES, domain_names, facts_of, num_images, recorded_name, whole_name
from fednb.data.dataset import Augmentation, DataError, Dataset, fingerprint

_LOADING = ["download", "load", "public_images", "register", "where"]
__all__ = ["NAMES", "Augmentation", "DataError", "Dataset", "domain_names", "facts_of", "fingerprint", "num_images"]
__all__ += ["recorded_name", "whole_name", *_LOADING]


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when it is asked for: that takes seconds, and not every command needs it."""
    if name not in _LOADING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fednb.data.loading"), name)
