"""How ``digits5_mini.npz`` was drawn: ``python data/digits5_mini.py FILE`` draws it again.

Five domains of digits, 16x16 RGB, as data/README.md describes them. Three are made of handwritten
digits, of which none is in two images.
"""

import sys
from pathlib import Path

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits
from synthdigits import clutter, draw

from fednb import seeds
from fednb.data import DATASETS, Dataset, patch, to_bytes
from fednb_lab.arrays import Split, from_splits, write

PER_CLASS = (40, 15)  # training and test images of each domain
NOTE = (
    "a stand-in for Digit-5, made of scikit-learn's digits and photographs and matplotlib's fonts"
)


def digits5_mini() -> Dataset:
    """Draw both splits of all domains."""
    spec = DATASETS["digits5_mini"]
    side = spec.shape[1]
    grey, train_sources, test_sources = sources()
    train = _split([grey[source] for source in train_sources], side, train=True)
    test = _split([grey[source] for source in test_sources], side, train=False)
    return from_splits(spec, train, test, spec.classes, "embedded", [NOTE])


def _split(handwritten: list[np.ndarray], side: int, train: bool) -> Split:
    """One split of all domains; three of them of ``handwritten`` digits, [N, 8, 8], by class."""
    labels = np.repeat(np.arange(10), len(handwritten[0]) // 10)
    purpose = f"embedded {'train' if train else 'test'}"
    slants = seeds.generator(0, purpose, client=1)
    patches = seeds.generator(0, purpose, client=2)
    plain, thick, on_photographs = handwritten
    blended = to_bytes([_blended(digit, side, patches, train) for digit in on_photographs])
    domains = [
        _grey_to_rgb([enlarged(digit, side) for digit in plain]),
        _grey_to_rgb([_slanted(digit, side, slants) for digit in thick]),
        blended.transpose(0, 3, 1, 2),
        draw(labels, side, train, "colours", clutter),
        draw(labels, side, train, "scenes", scene),
    ]
    return Split(
        images=np.concatenate(domains),
        labels=np.tile(labels, len(domains)),
        groups=np.repeat(np.arange(len(domains)), len(labels)),
    )


def _grey_to_rgb(images: list[np.ndarray]) -> np.ndarray:
    """Images [side, side] of 0 to 1 as uint8 [N, 3, side, side]."""
    return np.repeat(to_bytes(images)[:, None], 3, axis=1)


def _slanted(digit: np.ndarray, side: int, rng: np.random.Generator) -> np.ndarray:
    """The digit slanted to either side, with thicker strokes."""
    slanted = enlarged(digit, side, rng.choice([-1, 1]) * rng.uniform(0.3, 0.5))
    return ndimage.grey_dilation(slanted, footprint=np.ones((2, 2)))


def _blended(digit: np.ndarray, side: int, rng: np.random.Generator, train: bool) -> np.ndarray:
    """Absolute difference of digit and photograph, [side, side, 3]: the recipe of MNIST-M."""
    return np.abs(patch(rng, side, train) - enlarged(digit, side)[..., None])


def sources() -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """scikit-learn's digits [1797, 8, 8], 0 to 1; those of three domains, training and test."""
    bunch = load_digits()
    rng = seeds.generator(0, "embedded digits")
    orders = [rng.permutation(np.flatnonzero(bunch.target == k)) for k in range(10)]
    ends = np.repeat(PER_CLASS, 3).cumsum()
    cuts = [np.split(order, ends) for order in orders]
    parts = [np.concatenate(of_classes) for of_classes in zip(*cuts, strict=True)]
    return bunch.images / 16, parts[:3], parts[3:6]


def enlarged(digit: np.ndarray, side: int, slant: float = 0.0) -> np.ndarray:
    """Enlarge a digit [8, 8] to [side, side], and slant it by so many columns per row."""
    scale = len(digit) / side
    centre = (len(digit) - 1) / 2
    middle = (side - 1) / 2
    matrix = np.array([[scale, 0], [slant * scale, scale]])
    return ndimage.affine_transform(
        digit, matrix, centre - matrix @ (middle, middle), (side, side), order=1
    )


def scene(rng: np.random.Generator, size: int, train: bool) -> np.ndarray:
    """A piece of a photograph, lighter or darker, with less or more contrast."""
    piece = patch(rng, size, train)
    mean = piece.mean((0, 1))
    return np.clip(mean + rng.uniform(0.5, 1.1) * (piece - mean) + rng.uniform(-0.15, 0.15), 0, 1)


if __name__ == "__main__":
    write(Path(sys.argv[1]), digits5_mini(), compressed=True)
