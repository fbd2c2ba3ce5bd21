"""Pieces of photographs, and images in memory brought into another form."""

import functools

import numpy as np
from PIL import Image


def as_rgb(images: np.ndarray, side: int) -> np.ndarray:
    """Bring uint8 [N, C, H, W] to [N, 3, side, side], bilinearly as torchvision's Resize does."""
    if images.shape[-2:] != (side, side):
        channels = images.reshape(-1, *images.shape[-2:])
        resized = [
            np.asarray(Image.fromarray(channel).resize((side, side), Image.Resampling.BILINEAR))
            for channel in channels
        ]
        images = np.stack(resized).reshape(len(images), -1, side, side)
    return np.broadcast_to(images, (len(images), 3, side, side))


def to_bytes(x: np.ndarray | list[np.ndarray]) -> np.ndarray:
    """Values of 0 to 1 as bytes."""
    return np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)


@functools.cache
def photographs() -> tuple[np.ndarray, ...]:
    """scikit-learn's two, uint8 [427, 640, 3]."""
    from sklearn.datasets import load_sample_images

    return tuple(load_sample_images().images)


def patch(rng: np.random.Generator, size: int, train: bool) -> np.ndarray:
    """A piece of a photograph, reduced by 1, 2 or 3: [size, size, 3], 0 to 1.

    For training it is of the left two thirds, for testing of what remains.
    """
    photograph = photographs()[rng.integers(2)]
    middle = photograph.shape[1] * 2 // 3
    photograph = photograph[:, :middle] if train else photograph[:, middle:]
    scale = int(rng.choice((1, 2, 3)))
    top, left = (int(rng.integers(side - size * scale + 1)) for side in photograph.shape[:2])
    piece = photograph[top : top + size * scale, left : left + size * scale] / 255
    return piece.reshape(size, scale, size, scale, 3).mean((1, 3))
