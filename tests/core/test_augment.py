"""Batched augmentation against torchvision, one image at a time."""

import itertools

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as TF

from fednb import augment
from fednb.data import Augmentation

CIFAR10 = Augmentation(pad=4, pad_mode="reflect", flip=True)
CIFAR100 = Augmentation(pad=4, flip=True, rotation=15.0)


@pytest.fixture
def images():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50, 3, 32, 32), np.uint8))


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def one_by_one(images, index, draws, augmentation):
    """The reference: uint8 [B, C, H, W]."""
    result = []
    for i, (row, column, flip, degrees) in zip(index.tolist(), draws.tolist(), strict=True):
        x = TF.pad(images[i], augmentation.pad, padding_mode=augmentation.pad_mode)
        x = TF.crop(x, int(row), int(column), 32, 32)
        x = TF.hflip(x) if flip else x
        result.append(TF.rotate(x, degrees) if augmentation.rotation else x)
    return torch.stack(result)


def batched(images, index, draws, augmentation):
    stored = augment.store(images, augmentation)
    return augment.gather(stored, index, draws, augmentation).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    "augmentation", [CIFAR10, Augmentation(4, flip=True), Augmentation(2), Augmentation(flip=True)]
)
def test_crop_and_flip_equal_torchvision_exactly(images, rng, augmentation):
    index, draws = torch.from_numpy(rng.permutation(50)), augment.draw(50, augmentation, rng)
    result = batched(images, index, draws, augmentation)
    assert torch.equal(result, one_by_one(images, index, draws, augmentation))
    assert not torch.equal(result, images[index])
    assert torch.equal(batched(images, index, None, augmentation), images[index])


def test_rotation_equals_torchvision_up_to_ties_of_the_nearest_pixel(images, rng):
    index, draws = torch.arange(50), augment.draw(50, CIFAR100, rng)
    expected = one_by_one(images, index, draws, CIFAR100)
    different = batched(images, index, draws, CIFAR100) != expected
    assert different.float().mean() < 0.002
    tall = torch.from_numpy(rng.integers(0, 256, (1, 1, 40, 20), np.uint8))  # not square
    by_30_degrees = torch.tensor([[0.0, 0.0, 0.0, 30.0]])
    turned = batched(tall, torch.tensor([0]), by_30_degrees, Augmentation(rotation=30.0))
    assert (turned[0] != TF.rotate(tall[0], 30.0)).float().mean() < 0.01


def test_normalisation_equals_torchvision(images):
    mean, std = (0.1, 0.5, 0.9), (0.2, 0.3, 0.4)
    x = augment.normalise(images.permute(0, 2, 3, 1), *augment.constants(mean, std))
    assert x.dtype == torch.float32
    expected = TF.normalize(images.float() / 255, mean, std)
    torch.testing.assert_close(x, expected, rtol=1e-5, atol=1e-6)


def test_crops_flips_and_angles_are_drawn_equally_often_and_nothing_is_drawn_for_nothing(rng):
    draws = augment.draw(81_000, CIFAR10, rng)
    crops, counts = draws[:, :2].unique(dim=0, return_counts=True)
    assert crops.int().tolist() == [list(c) for c in itertools.product(range(9), repeat=2)]
    assert 850 < counts.min() < counts.max() < 1150 and not draws[:, 3].any()
    assert draws[:, 2].mean() == pytest.approx(0.5, abs=0.01)
    degrees = augment.draw(10_000, CIFAR100, rng)[:, 3]
    assert -15 <= degrees.min() < -14.9
    assert 14.9 < degrees.max() <= 15
    assert degrees.histc(10, -15, 15).min() > 850
    assert not augment.draw(10, Augmentation(), rng).any()
