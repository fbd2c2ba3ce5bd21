"""Networks and a method small enough to count their values by hand, and what tests compare."""

import random

import numpy as np
import torch
from torch import nn

from fednb import seeds
from fednb.data import Augmentation, Dataset
from fednb.federation import FedAvg
from fednb.models import Net, Output


def random_states():
    """The states of the global generators of Python, NumPy and torch, to be compared."""
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


def noise(images=60, tests=40, shape=(1, 8, 8), num_classes=3, *, mean=0.5, std=0.25, **more):
    """A data set of random pixels and labels."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (images + tests, *shape), np.uint8))
    labels = torch.from_numpy(rng.integers(0, num_classes, images + tests))
    values = {
        "name": "noise",
        "images": pixels[:images],
        "labels": labels[:images],
        "test_images": pixels[images:],
        "test_labels": labels[images:],
        "classes": tuple(map(str, range(num_classes))),
        "mean": (mean,) * shape[0],
        "std": (std,) * shape[0],
        "augmentation": Augmentation(),
        "fingerprint": "0" * 16,
        "source": "made up",
    }
    return Dataset(**values | more)


class BatchNormNet(Net):
    """A network with BatchNorm on 8x8 images, small enough to count its values by hand."""

    def __init__(self, num_classes=3, width=3, seed=0):
        with seeds.torch_seed(seed, "initial weights"):
            encoder = nn.Sequential(
                nn.Conv2d(1, width, 3, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(36 * width, 4),
            )
            super().__init__(encoder, nn.Identity(), nn.Linear(4, num_classes))


class Point(Net):
    """Two numbers w, whatever the image."""

    def __init__(self):
        nn.Module.__init__(self)
        self.w = nn.Parameter(torch.tensor([1.0, -1.0]))

    def forward(self, x):
        w = self.w.expand(len(x), 2)
        return Output(w, w)


class Quadratic(FedAvg):
    """FedAvg on the loss a/2 (w - b)² summed over two coordinates; the pixels of a client's images hold a and b."""

    def loss(self, model, x, y, context):
        a, b = x.flatten(1).split(2, 1)
        return {"quadratic": (a * (model(x).representation - b).square() / 2).sum(1).mean()}
