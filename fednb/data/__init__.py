"""Data sets as uint8 images and int64 labels in memory: `load` finds them (data/README.md), `register` adds one's own."""

from fednb.data.catalog import NAMES, facts_of, recorded_name, whole_name
from fednb.data.dataset import Augmentation, Dataset, fingerprint
from fednb.data.loading import download, load, register, where
from fednb.errors import DataError

__all__ = [
    "NAMES",
    "Augmentation",
    "DataError",
    "Dataset",
    "download",
    "facts_of",
    "fingerprint",
    "load",
]
__all__ += ["recorded_name", "register", "where", "whole_name"]
