"""Data sets as uint8 images and int64 labels in memory: `load` finds one, `register` adds one."""

from fednb.data.dataset import Augmentation, Dataset, fingerprint
from fednb.data.downloads import download
from fednb.data.loading import load, recorded_name, spec_of, where, whole_name
from fednb.data.registered import register
from fednb.data.spec import EMBEDDED, NAMES, DatasetSpec
from fednb.errors import DataError

__all__ = [
    "EMBEDDED",
    "NAMES",
    "Augmentation",
    "DataError",
    "Dataset",
    "DatasetSpec",
    "download",
    "fingerprint",
    "load",
    "recorded_name",
    "register",
    "spec_of",
    "where",
    "whole_name",
]
