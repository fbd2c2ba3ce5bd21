"""The papers' networks. Each returns its representation and its logits."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchvision.models import resnet

from fednb import seeds


class Output(NamedTuple):
    """What a model returns for a batch of B images."""

    representation: Tensor  # z, [B, D]: the vector that the output layer sees
    logits: Tensor  # [B, K]


class Net(nn.Module):
    """Encoder, optional projection head, output layer (MOON, section 3.3).

    Parameters
    ----------
    encoder
        Maps images [B, C, H, W] to features h, [B, num_features].
    head
        Widths (hidden, out) of the projection head ``Linear, ReLU, Linear``, or None: then z = h.
    """

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, head: tuple[int, int] | None) -> None:
        super().__init__()
        self.encoder = encoder
        if head is None:
            self.head: nn.Module = nn.Identity()
            num_representation = num_features
        else:
            hidden, num_representation = head
            self.head = nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, num_representation))
        self.classifier = nn.Linear(num_representation, num_classes)
        # the same network without weights, in eval mode; in a tuple, so that it is no part of this one
        self._shape = (copy.deepcopy(self).to("meta").eval().requires_grad_(False),)

    def forward(self, x: Tensor) -> Output:
        z = self.head(self.encoder(x))
        return Output(z, self.classifier(z))

    @torch.no_grad()
    def frozen(self, states: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Representations [m, B, D] of images x [B, C, H, W] by m networks of this shape with weights of their own.

        They are in eval mode and get no gradient; this network's mode, weights and BatchNorm buffers play no part.
        """
        (shape,) = self._shape
        return torch.stack([torch.func.functional_call(shape, dict(state), (x,)).representation for state in states])


def _simple_cnn(channels: int, side: int) -> tuple[nn.Module, int]:
    """Two 5x5 convolutions, two linear layers (MOON, section 4.1)."""
    left = ((side - 4) // 2 - 4) // 2
    # ReLU and max-pooling commute; in this order ReLU has a quarter of the work
    encoder = nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * left**2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
    )
    return encoder, 84


def _digits_cnn(channels: int, side: int) -> tuple[nn.Module, int]:
    """Two 3x3 convolutions, one linear layer; for the embedded 8x8 digits."""
    encoder = nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU()),
    )
    return encoder, 64


def _resnet(block: type, layers: list[int], channels: int) -> tuple[nn.Module, int]:
    """torchvision's ResNet in its CIFAR form: 3x3 stem with stride 1, no max-pooling, average-pooled features."""
    net = resnet.ResNet(block, layers)
    net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.maxpool = nn.Identity()
    num_features = net.fc.in_features
    net.fc = nn.Identity()
    return net, num_features


# name: (encoder from channels and side, widths of the projection head, sides of the images that fit)
MODELS = {
    "digits-cnn": (_digits_cnn, (64, 64), (8,)),
    "simple-cnn": (_simple_cnn, (84, 256), (28, 32)),
    "resnet-10": (lambda c, _: _resnet(resnet.BasicBlock, [1, 1, 1, 1], c), (512, 256), range(8, 1025)),
    "resnet-18": (lambda c, _: _resnet(resnet.BasicBlock, [2, 2, 2, 2], c), (512, 256), range(8, 1025)),
    "resnet-50": (lambda c, _: _resnet(resnet.Bottleneck, [3, 4, 6, 3], c), (2048, 256), range(8, 1025)),
}


def build(
    name: str,
    num_classes: int,
    *,
    channels: int = 3,
    projection_head: bool = True,
    projection_dim: int | None = None,
    side: int = 32,
    seed: int = 0,
) -> Net:
    """Build a network whose initial weights depend on ``seed`` alone.

    Parameters
    ----------
    name
        A key of ``MODELS``.
    channels, side
        Shape [channels, side, side] of the images.
    projection_head
        False puts the output layer directly on the encoder (MOON, Table 7).
    projection_dim
        Width D of the projection head's output; None is the model's own (256 for the papers' networks).

    Raises
    ------
    ValueError
        If the name is unknown or the network does not fit images of that size.
    """
    if name not in MODELS:
        raise ValueError(f"Unknown model {name!r}; known: {', '.join(MODELS)}.")
    make_encoder, head, sides = MODELS[name]
    if side not in sides:
        raise ValueError(
            f"Model {name!r} does not take images of {side}x{side} pixels; it takes sides of {min(sides)} to {max(sides)}."
        )
    with seeds.torch_seed(seed, "initial weights"):
        encoder, num_features = make_encoder(channels, side)
        widths = (head[0], projection_dim or head[1]) if projection_head else None
        return Net(encoder, num_features, num_classes, widths)


def num_parameters(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters())
