"""How ``digits.npz`` was made: ``python data/digits.py FILE`` makes it again.

scikit-learn's 8x8 digits (0..16, here 0..255), four fifths of each class for training.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from fednb.data import DATASETS, Dataset
from fednb_lab.arrays import Split, from_splits, write


def digits() -> Dataset:
    """Divide them, by a stream of random numbers that never changes."""
    bunch = load_digits()
    images = np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    rng = np.random.RandomState(0)
    is_test = np.zeros(len(labels), bool)
    for k in range(10):
        members = rng.permutation(np.flatnonzero(labels == k))
        is_test[members[: round(len(members) / 5)]] = True
    none = np.zeros_like(labels)
    train = Split(images[~is_test], labels[~is_test], none[~is_test])
    test = Split(images[is_test], labels[is_test], none[is_test])
    return from_splits(DATASETS["digits"], train, test, DATASETS["digits"].classes, "embedded")


if __name__ == "__main__":
    write(Path(sys.argv[1]), digits(), compressed=True)
