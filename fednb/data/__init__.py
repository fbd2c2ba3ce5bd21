"""Data sets as tensors in memory: uint8 images and int64 labels, prepared as the papers' code prepares them.

`load` finds any known set in the layouts that `data/README.md` describes, `register` adds one's own. Two need no download.
"""

from fednb.data.catalog import NAMES, domain_names, facts_of, num_images, recorded_name, whole_name
from fednb.data.dataset import Augmentation, DataError, Dataset, fingerprint
from fednb.data.loading import download, load, public_images, register, where

__all__ = ["NAMES", "Augmentation", "DataError", "Dataset", "domain_names", "download", "facts_of", "fingerprint", "load"]
__all__ += ["num_images", "public_images", "recorded_name", "register", "where", "whole_name"]
