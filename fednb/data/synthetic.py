"""Data that need no download: scikit-learn's digits, domains made of them, and digits drawn in matplotlib's fonts.

SynthDigits varies number, position, orientation, colours and blur (Y. Ganin and V. Lempitsky, ICML 2015); its generator was
not published. Outlines are filled in double precision: a font engine's pixels differ from version to version.
"""

import functools
from pathlib import Path

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits, load_sample_images
from tqdm import tqdm

from fednb import seeds
from fednb.data.catalog import FACTS
from fednb.data.dataset import Content, content

_PER_CLASS = (40, 15)  # training and test images of each embedded domain
# all of matplotlib's files that hold upright arabic digits of full height
FONTS = [
    f"DejaVu{name}{style}"
    for name in ("Sans", "SansMono")
    for style in ("", "-Bold", "-Oblique", "-BoldOblique")
]
FONTS += [f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")]
FONTS += [f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")]
FONTS += ["cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"]
_GREY = np.array([0.299, 0.587, 0.114])  # luminance of red, green, blue
_UP = 4  # rows and columns of samples per pixel


def digits() -> Content:
    """scikit-learn's 8x8 digits (values 0..16, here 0..255), four fifths of each class for training."""
    bunch = load_digits()
    images, labels = (
        np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None],
        bunch.target.astype(np.int64),
    )
    rng = np.random.RandomState(0)  # its stream never changes, that of default_rng may
    test = np.zeros(len(labels), bool)
    for k in range(10):
        members = rng.permutation(np.flatnonzero(labels == k))
        test[members[: round(len(members) / 5)]] = True
    return content(
        (images[~test], labels[~test]), (images[test], labels[test]), FACTS["digits"].classes
    )


def synthdigits() -> Content:
    """SynthDigits in its published size, drawn here."""
    facts = FACTS["synthdigits"]
    labels, test_labels = (np.arange(number) % 10 for number in facts.sizes)
    train, test = (
        (draw(labels, 32, True, "colours"), labels),
        (draw(test_labels, 32, False, "colours"), test_labels),
    )
    return content(
        train, test, facts.classes, ["drawn in matplotlib's fonts, a stand-in for SynthDigits"]
    )


def digits5_mini() -> Content:
    """Five domains of digits, 16x16 RGB (see data/README.md); no handwritten digit is in two images, nor in both splits."""
    facts = FACTS["digits5_mini"]
    side, splits = facts.shape[1], []
    grey, *sources = _sources()
    for train, per_class, written in zip((True, False), _PER_CLASS, sources, strict=True):
        labels = np.repeat(np.arange(10), per_class)
        plain, thick, on_photographs = (grey[source] for source in written)
        _, slants, patches = (
            seeds.generator(0, f"embedded {'train' if train else 'test'}", client=d)
            for d in range(3)
        )
        slanted = [
            _enlarged(digit, side, slants.choice([-1, 1]) * slants.uniform(0.3, 0.5))
            for digit in thick
        ]
        slanted = [ndimage.grey_dilation(digit, footprint=np.ones((2, 2))) for digit in slanted]
        blended = [
            np.abs(patch(patches, side, train) - _enlarged(digit, side)[..., None])
            for digit in on_photographs
        ]
        parts = [
            np.repeat(to_bytes([_enlarged(digit, side) for digit in plain])[:, None], 3, axis=1),
            np.repeat(to_bytes(slanted)[:, None], 3, axis=1),
            to_bytes(blended).transpose(0, 3, 1, 2),
            draw(labels, side, train, "colours"),
            draw(labels, side, train, "scenes"),
        ]
        groups = np.repeat(np.arange(len(parts)), len(labels))
        splits.append((np.concatenate(parts), np.tile(labels, len(parts)), groups))
    return content(*splits, facts.classes)


def _sources() -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """scikit-learn's digits, float64 [1797, 8, 8] of 0 to 1, and which are in three domains, for training and for test."""
    bunch, rng = load_digits(), seeds.generator(0, "embedded digits")
    orders = [rng.permutation(np.flatnonzero(bunch.target == k)) for k in range(10)]
    sizes = np.repeat(_PER_CLASS, 3)
    cuts = [np.split(order, sizes.cumsum()) for order in orders]
    sources = [np.concatenate(parts) for parts in zip(*cuts, strict=True)]
    return bunch.images / 16, sources[:3], sources[3:6]


def to_bytes(x: np.ndarray | list[np.ndarray]) -> np.ndarray:
    """Values of 0 to 1 as bytes."""
    return np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)


def _enlarged(digit: np.ndarray, side: int, slant: float = 0.0) -> np.ndarray:
    """Enlarge a digit [8, 8] to [side, side], and slant it by so many columns per row."""
    scale = len(digit) / side
    centre, middle = (len(digit) - 1) / 2, (side - 1) / 2
    matrix = np.array([[scale, 0], [slant * scale, scale]])
    return ndimage.affine_transform(
        digit, matrix, centre - matrix @ (middle, middle), (side, side), order=1
    )


photographs = functools.cache(
    lambda: tuple(load_sample_images().images)
)  # scikit-learn's two, uint8 [427, 640, 3]


def patch(rng: np.random.Generator, size: int, train: bool) -> np.ndarray:
    """A piece of a photograph, for training of its left two thirds, reduced by 1, 2 or 3: [size, size, 3], 0 to 1."""
    photograph = photographs()[rng.integers(2)]
    middle = photograph.shape[1] * 2 // 3
    photograph = photograph[:, :middle] if train else photograph[:, middle:]
    scale = int(rng.choice((1, 2, 3)))
    top, left = (int(rng.integers(side - size * scale + 1)) for side in photograph.shape[:2])
    piece = photograph[top : top + size * scale, left : left + size * scale] / 255
    return piece.reshape(size, scale, size, scale, 3).mean((1, 3))


def draw(labels: np.ndarray, size: int, train: bool, kind: str) -> np.ndarray:
    """Digits in fonts with neighbours on "colours", as SynthDigits, or "scenes", photographs: uint8 [N, 3, size, size]."""
    images = np.empty((len(labels), 3, size, size), np.uint8)
    for i, label in enumerate(
        tqdm(labels, "drawing digits", unit=" images", delay=1, leave=False, disable=None)
    ):
        rng = seeds.generator(0, f"{kind} {'train' if train else 'test'}", client=i)
        if kind == "colours":
            ground = _clutter(rng, size)
        else:  # lighter or darker, with less or more contrast
            piece = patch(rng, size, train)
            mean = piece.mean((0, 1))
            ground = np.clip(
                mean + rng.uniform(0.5, 1.1) * (piece - mean) + rng.uniform(-0.15, 0.15), 0, 1
            )
        image = _paint(rng, ground, _number(rng, int(label), size))
        blur = rng.uniform(0, 1.1) * size / 32
        image = ndimage.gaussian_filter(image, (blur, blur, 0), mode="nearest")
        images[i] = to_bytes(
            image + rng.uniform(0, 0.05) * rng.standard_normal(image.shape)
        ).transpose(2, 0, 1)
    return images


@functools.cache
def outlines() -> list[list[list[np.ndarray]]]:
    """Polygons [n, 2] of each font and digit, y downwards, centred; the higher of a font's 1 and 0 has height 1."""
    import matplotlib  # slow to import
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    folder, steps, found = (
        Path(matplotlib.get_data_path()) / "fonts" / "ttf",
        np.linspace(0, 1, 6, endpoint=False),
        [],
    )
    for name in FONTS:
        font, shapes = FontProperties(fname=folder / f"{name}.ttf"), []
        for digit in "0123456789":
            polygons: list[list[np.ndarray]] = []
            for segment, code in TextPath((0, 0), digit, size=100, prop=font).iter_bezier():
                if code == matplotlib.path.Path.MOVETO:
                    polygons.append([])
                else:
                    polygons[-1].append(
                        segment(steps if len(segment.control_points) > 2 else steps[:1])
                    )
            shapes.append([np.concatenate(polygon) * (1, -1) for polygon in polygons])
        height = max(np.ptp(np.concatenate(shapes[d])[:, 1]) for d in (0, 1))
        for d, polygons in enumerate(shapes):
            points = np.concatenate(polygons)
            centre = (points.min(0) + points.max(0)) / 2
            shapes[d] = [(polygon - centre) / height for polygon in polygons]
        found.append(shapes)
    return found


def cover(polygons: list[np.ndarray], size: int) -> np.ndarray:
    """How much of each pixel lies inside polygons (even-odd rule) with corners (x, y) [n, 2], in pixels: [size, size]."""
    n = size * _UP
    start = np.concatenate(polygons) * _UP
    end = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons]) * _UP
    y = np.arange(n)[:, None] + 0.5
    row, edge = np.nonzero(
        (start[:, 1] <= y) != (end[:, 1] <= y)
    )  # which edges cross which line of samples
    a, b = start[edge], end[edge]
    x = a[:, 0] + (row + 0.5 - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
    crossings = np.zeros((n, n + 1), np.int64)
    np.add.at(crossings, (row, np.ceil(x - 0.5).clip(0, n).astype(int)), 1)
    inside = (
        crossings[:, :n].cumsum(1) % 2
    )  # a sample is inside if an odd number of edges lies left of it
    return inside.reshape(size, _UP, size, _UP).mean((1, 3))


def _clutter(rng: np.random.Generator, size: int) -> np.ndarray:
    """A ground that runs from one colour to another, with up to three stripes or corners across it."""
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
    """The digit in the middle, and what is seen of those beside it: cover [size, size] of one to three digits."""
    font = outlines()[rng.integers(len(FONTS))]
    height = size * rng.uniform(0.55, 0.85)
    angle, slant, stretch = (
        rng.uniform(-0.35, 0.35),
        rng.uniform(-0.25, 0.25),
        rng.uniform(0.8, 1.2),
    )
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = height * turn @ np.array([[stretch, slant], [0, 1]])
    centre = size * (0.5 + rng.uniform(-0.08, 0.08, 2))
    beside = [(side, int(rng.integers(10))) for side in (-1, 1) if rng.random() < 0.4]
    masks = []
    for side, which in [(0, digit), *beside]:
        gap = 0.12 + sum(np.ptp(np.concatenate(font[d])[:, 0]) / 2 for d in (digit, which))
        shift = np.array([side * gap, 0])
        masks.append(
            cover([(polygon + shift) @ matrix.T + centre for polygon in font[which]], size)
        )
    return masks


def _paint(rng: np.random.Generator, ground: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    """Put digits of one colour on a ground [size, size, 3]; the colour stands out from where the digit is."""
    weights = masks[0][..., None]
    below = (weights * ground).sum((0, 1)) / max(weights.sum(), 1e-9)
    candidates = rng.random((20, 3))
    apart = np.abs(
        (candidates - below) @ _GREY
    )  # the first that is far enough, or else the farthest
    colour = candidates[np.argmax(apart >= 0.35) if apart.max() >= 0.35 else np.argmax(apart)]
    ink = np.clip(sum(masks), 0, 1)[..., None] * rng.uniform(0.8, 1)
    return ground + ink * (colour - ground)
