"""Data sets as tensors in memory: uint8 images and int64 labels, prepared as the papers' code prepares them.

`load` finds any known set in the layouts that `data/README.md` describes, `register` adds one's own. Two need no download.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fednb.data.catalog import NAMES, domain_names, facts_of, num_images
from fednb.data.dataset import Augmentation, DataError, Dataset, fingerprint

if TYPE_CHECKING:
    from fednb.data.loading import download, load, public_images, register, where

__all__ = ["NAMES", "Augmentation", "DataError", "Dataset", "domain_names", "download", "facts_of", "fingerprint", "load"]
__all__ += ["num_images", "public_images", "register", "where"]


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when it is asked for: that takes seconds, and not every command needs it."""
    if name not in ("download", "load", "public_images", "register", "where"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fednb.data import loading

    return getattr(loading, name)
