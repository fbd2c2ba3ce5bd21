"""Augmentation and normalisation of batches on any device; NumPy draws the numbers on the host."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.data import Augmentation


def store(images: Tensor, augmentation: Augmentation) -> Tensor:
    """Pad once and put channels last: uint8 [N, C, H, W] to [N, H + 2p, W + 2p, C]."""
    pixels = images.permute(0, 2, 3, 1).cpu().numpy()
    sides = (augmentation.pad, augmentation.pad)
    padded = np.pad(pixels, ((0, 0), sides, sides, (0, 0)), mode=augmentation.pad_mode)
    return torch.from_numpy(np.ascontiguousarray(padded))


def draw(num: int, augmentation: Augmentation, rng: np.random.Generator) -> Tensor:
    """Draw the changes, float32 [num, 4]: crop row, crop column, flip (0 or 1), degrees."""
    p = augmentation.pad
    r = augmentation.rotation
    corner = rng.integers(0, 2 * p + 1, (num, 2)) if p else np.zeros((num, 2))
    flip = rng.integers(0, 2, num) if augmentation.flip else np.zeros(num)
    degrees = rng.uniform(-r, r, num) if r else np.zeros(num)
    return torch.from_numpy(np.column_stack([corner, flip, degrees]).astype(np.float32))


def gather(
    stored: Tensor, index: Tensor, draws: Tensor | None, augmentation: Augmentation
) -> Tensor:
    """Return stored images ``index`` [B], uint8 [B, H, W, C], changed by ``draws`` unless None."""
    n, height, width, channels = stored.shape
    p = augmentation.pad
    rows, columns = height - 2 * p, width - 2 * p
    s0, s1, s2, s3 = stored.stride()
    # every crop of every image as a view, [N, 2p+1, 2p+1, H, W, C]: one indexing picks all crops
    crops = stored.as_strided(
        (n, 2 * p + 1, 2 * p + 1, rows, columns, channels), (s0, s1, s2, s1, s2, s3)
    )
    if draws is None:
        return crops[index, p, p]
    x = crops[index, draws[:, 0].long(), draws[:, 1].long()]
    if augmentation.flip:
        x = torch.where(draws[:, 2].bool()[:, None, None, None], x.flip(2), x)
    if augmentation.rotation:
        x = _rotate(x, draws[:, 3])
    return x


def _rotate(x: Tensor, degrees: Tensor) -> Tensor:
    """Rotate uint8 [B, H, W, C] counter-clockwise about the centre: nearest pixel, else zero."""
    angle = torch.deg2rad(degrees)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows, columns = x.shape[1:3]
    # the output pixel at (u, v), in units of half a side, shows the input at (u, v) turned back
    theta = torch.stack(
        [cos, -sin * rows / columns, zero, sin * columns / rows, cos, zero], 1
    ).view(-1, 2, 3)
    pixels = x.permute(0, 3, 1, 2).float()
    grid = F.affine_grid(theta, list(pixels.shape), align_corners=False)
    turned = F.grid_sample(pixels, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return turned.permute(0, 2, 3, 1).to(torch.uint8)


def constants(
    mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Return scale and shift, [C] each, that take a byte b to (b / 255 - mean) / std."""
    scale = torch.tensor([1 / (255 * s) for s in std], dtype=torch.float32)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], dtype=torch.float32)
    return scale.to(device), shift.to(device)


def normalise(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise uint8 [B, H, W, C] to float32 [B, C, H, W], whose memory stays channels-last."""
    return torch.addcmul(shift, x.to(torch.float32), scale).permute(0, 3, 1, 2)
