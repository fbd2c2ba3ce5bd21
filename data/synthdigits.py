"""Digits drawn in fonts: what stands for SynthDigits, and two domains of ``digits5_mini.py``.

`fednb data synthdigits` draws them.

SynthDigits varies number, position, orientation, colours and blur (Y. Ganin and V. Lempitsky, ICML
2015); its generator was not published. Outlines of fonts are filled in double precision, since the
pixels of a font engine differ from version to version.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from tqdm import tqdm

from fednb import seeds
from fednb.data import DATASETS, Dataset, to_bytes
from fednb_lab.arrays import Split, from_splits

# all of matplotlib's files that hold upright arabic digits of full height
_STYLES = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
    "cm": ("b10", "r10", "ss10", "ti10", "tt10"),
}
FONTS = [f"{name}{style}" for name, styles in _STYLES.items() for style in styles]
_GREY = np.array([0.299, 0.587, 0.114])  # luminance of red, green, blue
_UP = 4  # rows and columns of samples per pixel
# draws from a generator, for a size and split (is it the training one?), an image [size, size, 3]
Ground = Callable[[np.random.Generator, int, bool], np.ndarray]


def synthdigits() -> Dataset:
    """SynthDigits in its published size, drawn here."""
    spec = DATASETS["synthdigits"]
    num_train, num_test = spec.sizes
    labels = np.arange(num_train) % 10
    test_labels = np.arange(num_test) % 10
    return from_splits(
        spec,
        _without_domains(draw(labels, 32, True, "colours", clutter), labels),
        _without_domains(draw(test_labels, 32, False, "colours", clutter), test_labels),
        spec.classes,
        "rendered",
        ["drawn in matplotlib's fonts, a stand-in for SynthDigits"],
    )


def _without_domains(images: np.ndarray, labels: np.ndarray) -> Split:
    return Split(images, labels, np.zeros_like(labels))


def draw(labels: np.ndarray, size: int, train: bool, kind: str, ground: Ground) -> np.ndarray:
    """Digits in fonts, with neighbours, on a drawn ground: uint8 [N, 3, size, size].

    Image i depends on i, its label, the split and the kind, which is a name, alone.
    """
    images = np.empty((len(labels), 3, size, size), np.uint8)
    progress = tqdm(labels, "drawing digits", unit=" images", delay=1, leave=False, disable=None)
    for i, label in enumerate(progress):
        rng = seeds.generator(0, f"{kind} {'train' if train else 'test'}", client=i)
        image = _paint(rng, ground(rng, size, train), _number(rng, int(label), size))
        blur = rng.uniform(0, 1.1) * size / 32
        image = ndimage.gaussian_filter(image, (blur, blur, 0), mode="nearest")
        noise = rng.uniform(0, 0.05) * rng.standard_normal(image.shape)
        images[i] = to_bytes(image + noise).transpose(2, 0, 1)
    return images


@functools.cache
def outlines() -> list[list[list[np.ndarray]]]:
    """Centred polygons [n, 2] of each font and digit; the higher of its 1 and 0 has height 1."""
    import matplotlib  # slow to import

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = []
    for name in FONTS:
        digits_of_font = [_outline(folder / f"{name}.ttf", digit) for digit in "0123456789"]
        height = max(np.ptp(np.concatenate(digits_of_font[d])[:, 1]) for d in (0, 1))
        fonts.append([_centred(polygons, height) for polygons in digits_of_font])
    return fonts


def _outline(font: Path, digit: str) -> list[np.ndarray]:
    """The polygons of a digit in a font of size 100; curves become six points each."""
    from matplotlib.font_manager import FontProperties  # slow to import
    from matplotlib.path import Path as Curves
    from matplotlib.textpath import TextPath

    steps = np.linspace(0, 1, 6, endpoint=False)
    path = TextPath((0, 0), digit, size=100, prop=FontProperties(fname=font))
    polygons: list[list[np.ndarray]] = []
    segments: Any = path.iter_bezier()  # matplotlib declares another type than it gives
    for segment, code in segments:
        if code == Curves.MOVETO:
            polygons.append([])
        else:
            is_curve = len(segment.control_points) > 2
            polygons[-1].append(segment(steps if is_curve else steps[:1]))
    return [np.concatenate(points) * (1, -1) for points in polygons]


def _centred(polygons: list[np.ndarray], height: float) -> list[np.ndarray]:
    """Polygons around the middle of their bounding box, in units of ``height``."""
    points = np.concatenate(polygons)
    centre = (points.min(0) + points.max(0)) / 2
    return [(polygon - centre) / height for polygon in polygons]


def cover(polygons: list[np.ndarray], size: int) -> np.ndarray:
    """How much of each pixel lies inside polygons of corners (x, y) [n, 2] in pixels: [size, size].

    Where polygons overlap, the even-odd rule decides.
    """
    n = size * _UP
    start = np.concatenate(polygons) * _UP
    end = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons]) * _UP
    y = np.arange(n)[:, None] + 0.5
    # which edges cross which line of samples
    row, edge = np.nonzero((start[:, 1] <= y) != (end[:, 1] <= y))
    a = start[edge]
    b = end[edge]
    x = a[:, 0] + (row + 0.5 - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
    crossings = np.zeros((n, n + 1), np.int64)
    np.add.at(crossings, (row, np.ceil(x - 0.5).clip(0, n).astype(int)), 1)
    # a sample is inside if an odd number of edges lies left of it
    inside = crossings[:, :n].cumsum(1) % 2
    return inside.reshape(size, _UP, size, _UP).mean((1, 3))


def clutter(rng: np.random.Generator, size: int, train: bool) -> np.ndarray:
    """SynthDigits' ground, in either split.

    It runs from one colour to another, with up to three stripes or corners on it.
    """
    first = rng.random(3)
    second = np.clip(first + rng.uniform(-0.3, 0.3, 3), 0, 1)
    angle = rng.uniform(0, 2 * np.pi)
    steps = (np.arange(size) + 0.5) / size - 0.5
    along = 0.5 + 0.7 * (np.cos(angle) * steps[None, :] + np.sin(angle) * steps[:, None])
    ground = first + along[..., None].clip(0, 1) * (second - first)
    for _ in range(rng.integers(4)):
        corners = rng.uniform(-0.2, 1.2, (3, 2)) * size
        if rng.random() < 0.5:  # a stripe from the first corner to the second
            across = (corners[1] - corners[0])[::-1] * (1, -1) / size * rng.uniform(0.02, 0.1)
            corners = np.stack(
                [corners[0] - across, corners[0] + across, corners[1] + across, corners[1] - across]
            )
        shade = np.clip(first + rng.uniform(-0.35, 0.35, 3), 0, 1)
        ground = ground + 0.8 * cover([corners], size)[..., None] * (shade - ground)
    return ground


def _number(rng: np.random.Generator, digit: int, size: int) -> list[np.ndarray]:
    """The digit in the middle and what is seen of those beside it: one to three masks."""
    font = outlines()[rng.integers(len(FONTS))]
    height = size * rng.uniform(0.55, 0.85)
    angle = rng.uniform(-0.35, 0.35)
    slant = rng.uniform(-0.25, 0.25)
    stretch = rng.uniform(0.8, 1.2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = height * turn @ np.array([[stretch, slant], [0, 1]])
    centre = size * (0.5 + rng.uniform(-0.08, 0.08, 2))
    beside = [(side, int(rng.integers(10))) for side in (-1, 1) if rng.random() < 0.4]
    masks = []
    for side, neighbour in [(0, digit), *beside]:
        gap = 0.12 + sum(np.ptp(np.concatenate(font[d])[:, 0]) / 2 for d in (digit, neighbour))
        shift = np.array([side * gap, 0])
        polygons = [(polygon + shift) @ matrix.T + centre for polygon in font[neighbour]]
        masks.append(cover(polygons, size))
    return masks


def _paint(rng: np.random.Generator, ground: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    """Put digits of one colour, which stands out, on a ground [size, size, 3]."""
    weights = masks[0][..., None]
    below = (weights * ground).sum((0, 1)) / max(weights.sum(), 1e-9)
    candidates = rng.random((20, 3))
    contrast = np.abs((candidates - below) @ _GREY)
    if contrast.max() >= 0.35:
        colour = candidates[np.argmax(contrast >= 0.35)]  # the first that stands out enough
    else:
        colour = candidates[np.argmax(contrast)]
    ink = np.clip(sum(masks), 0, 1)[..., None] * rng.uniform(0.8, 1)
    return ground + ink * (colour - ground)
