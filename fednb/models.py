"""The papers' networks. Each returns its representation and its logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fednb import seeds


class Output(NamedTuple):
    """What a model returns for a batch of B images."""

    representation: Tensor  # z, [B, D]: the vector that the output layer sees
    logits: Tensor  # [B, K]


class Dropout(nn.Module):
    """Zero each value (or each channel) with probability p in train mode and scale the rest by 1 / (1 - p).

    Clients train side by side, so torch's own dropout, which draws from the global generator, would make results
    depend on their order. This one draws from ``generator`` and from nothing else.

    Parameters
    ----------
    p
        Probability of a zero, in [0, 1).
    channelwise
        Zero whole channels of images [B, C, H, W] instead of single values.

    Attributes
    ----------
    generator : torch.Generator or None
        On the device of the values; see `seed_dropout`. None: the network cannot be trained yet.
    """

    def __init__(self, p: float, channelwise: bool = False) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p is {p}; a dropout probability must be in [0, 1).")
        self.p, self.channelwise = p, channelwise
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.generator is None:
            raise RuntimeError("Dropout has no generator to draw from: call seed_dropout(model, generator) before training.")
        shape = (*x.shape[:2], *[1] * (x.ndim - 2)) if self.channelwise else x.shape
        # uniform numbers instead of bernoulli_, which draws other numbers on machines without MKL
        keep = torch.rand(shape, generator=self.generator, dtype=x.dtype, device=x.device) >= self.p
        return x * keep / (1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}, channelwise={self.channelwise}"


def seed_dropout(model: nn.Module, generator: torch.Generator | None) -> None:
    """Let all dropout of a network draw from ``generator``, one mask after the other; None takes it away again.

    The federation does so for each client and round. No two clients train one network at a time.
    """
    for module in model.modules():
        if isinstance(module, Dropout):
            module.generator = generator


# In which the layers of a network compute. Weights, buffers and what a network returns are float32 either way.
PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}


class Net(nn.Module):
    """Encoder, optional projection head, output layer (MOON, section 3.3).

    Parameters
    ----------
    encoder
        Maps images [B, C, H, W] to features h, [B, num_features].
    head
        Widths (hidden, out) of the projection head ``Linear, ReLU, Linear``, or None: then z = h.
    dropout
        Probability with which the output layer does not see a value of z; the representation itself is not changed.
    precision
        In which `forward` computes, a value of ``PRECISIONS``; None is float32. See `torch.autocast`.
    """

    precision: torch.dtype | None = None

    def __init__(
        self,
        encoder: nn.Module,
        num_features: int,
        num_classes: int,
        head: tuple[int, int] | None,
        dropout: float = 0.0,
        precision: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.precision = precision
        self.encoder = encoder
        if head is None:
            self.head: nn.Module = nn.Identity()
            num_representation = num_features
        else:
            hidden, num_representation = head
            self.head = nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, num_representation))
        self.dropout = Dropout(dropout) if dropout else nn.Identity()
        self.classifier = nn.Linear(num_representation, num_classes)
        # the same network without weights, in eval mode, up to its representation; in a tuple, so as to be no part of this
        shape = copy.deepcopy(self).to("meta").eval().requires_grad_(False)
        shape.dropout = shape.classifier = nn.Identity()
        self._shape = (shape,)

    def classify(self, z: Tensor) -> Tensor:
        """Logits [B, K] of representations z [B, D]."""
        return self.classifier(self.dropout(z))

    def forward(self, x: Tensor) -> Output:
        if self.precision is None:
            z = self.head(self.encoder(x))
            return Output(z, self.classify(z))
        with torch.autocast(x.device.type, self.precision):
            z = self.head(self.encoder(x))
            logits = self.classify(z)
        return Output(z.float(), logits.float())  # so that losses, their sums and prototypes keep their digits

    @torch.no_grad()
    def frozen(self, states: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Representations [m, B, D] of images x [B, C, H, W] by m networks of this shape with weights of their own.

        They are in eval mode and get no gradient; this network's mode, weights and BatchNorm buffers play no part.
        """
        (shape,) = self._shape
        return torch.stack([torch.func.functional_call(shape, dict(state), (x,)).representation for state in states])


def _stack(*layers: nn.Module) -> nn.Sequential:
    """Layers one after the other; linear ones are called fc1, fc2, ..., so that a method can tell them by their names."""
    stack, linear = nn.Sequential(), 0
    for i, layer in enumerate(layers):
        linear += isinstance(layer, nn.Linear)
        stack.add_module(f"fc{linear}" if isinstance(layer, nn.Linear) else str(i), layer)
    return stack


def _simple_cnn(channels: int, side: int) -> tuple[nn.Module, int]:
    """Two 5x5 convolutions, two linear layers (MOON, section 4.1)."""
    left = ((side - 4) // 2 - 4) // 2
    # ReLU and max-pooling commute; in this order ReLU has a quarter of the work
    encoder = _stack(
        *(nn.Conv2d(channels, 6, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * left**2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
    )
    return encoder, 84


def _digits_cnn(channels: int, side: int) -> tuple[nn.Module, int]:
    """Two 3x3 convolutions, one linear layer; for the embedded digits of 8x8 and 16x16 pixels."""
    encoder = _stack(
        *(nn.Conv2d(channels, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, 64), nn.ReLU()),
    )
    return encoder, 64


def _resnet(layers: list[int], channels: int, width: int = 64, bottleneck: bool = False) -> tuple[nn.Module, int]:
    """torchvision's ResNet in its CIFAR form: 3x3 stem with stride 1, no max-pooling, average-pooled features.

    The first of its four stages has ``width`` channels, each other one twice as many as the one before.
    """
    from torchvision.models import resnet  # slow to import

    block = resnet.Bottleneck if bottleneck else resnet.BasicBlock
    net = resnet.ResNet(block, layers)
    num_features = net.fc.in_features * width // 64
    if width != 64:  # torchvision's basic blocks know no other width
        net.inplanes, net.bn1 = width, nn.BatchNorm2d(width)
        for i, number in enumerate(layers):
            setattr(net, f"layer{i + 1}", net._make_layer(block, width * 2**i, number, stride=1 if i == 0 else 2))
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    net.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.maxpool = nn.Identity()
    net.fc = nn.Identity()
    return net, num_features


def _fedproto_cnn(kernel: int, width: int) -> Callable[[int, int], tuple[nn.Module, int]]:
    """FedProto's CNN: two convolutions (10 and ``width`` channels), one linear layer to 50 features, channel dropout.

    The paper gives "2 convolutional layers then 2 fully connected layers" (section "Datasets and local models"); the
    rest is in its code. The first convolution is ``kernel`` x ``kernel``: 5 for MNIST, 3 for FEMNIST.
    """

    def make(channels: int, side: int) -> tuple[nn.Module, int]:
        left = ((side - kernel + 1) // 2 - 4) // 2
        encoder = _stack(
            *(nn.Conv2d(channels, 10, kernel), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, width, 5), Dropout(0.5, channelwise=True), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(width * left**2, 50), nn.ReLU()),
        )
        return encoder, 50

    return make


def _resnet_7x7(conv1_stride: int, maxpool_stride: int) -> Callable[[int, int], tuple[nn.Module, int]]:
    """torchvision's ResNet-18 as it is for ImageNet (7x7 stem, 3x3 max-pooling), with the given strides."""

    def make(channels: int, side: int) -> tuple[nn.Module, int]:
        from torchvision.models import resnet

        net = resnet.ResNet(resnet.BasicBlock, [2, 2, 2, 2])
        net.conv1 = nn.Conv2d(channels, 64, 7, stride=conv1_stride, padding=3, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = nn.MaxPool2d(3, stride=maxpool_stride, padding=1)
        num_features = net.fc.in_features
        net.fc = nn.Identity()
        return net, num_features

    return make


class Model(NamedTuple):
    """How a network is built."""

    encoder: Callable[[int, int], tuple[nn.Module, int]]  # from channels and side
    head: tuple[int, int] | None  # widths of the projection head; None: it never has one
    sides: Sequence[int]  # of the images that fit
    dropout: float = 0.0  # before the output layer


MODELS = {
    "digits-cnn": Model(_digits_cnn, (64, 64), (8, 16)),
    "simple-cnn": Model(_simple_cnn, (84, 256), (28, 32)),
    "resnet-10": Model(lambda c, _: _resnet([1, 1, 1, 1], c), (512, 256), range(8, 1025)),
    # a quarter of its channels and a sixteenth of its work, for runs on a CPU
    "resnet-10-16": Model(lambda c, _: _resnet([1, 1, 1, 1], c, 16), (128, 256), range(8, 1025)),
    "resnet-18": Model(lambda c, _: _resnet([2, 2, 2, 2], c), (512, 256), range(8, 1025)),
    "resnet-50": Model(lambda c, _: _resnet([3, 4, 6, 3], c, bottleneck=True), (2048, 256), range(8, 1025)),
    # FedProto, and its variants for heterogeneous clients: all of a family have representations of one width
    "mnist-cnn": Model(_fedproto_cnn(5, 20), None, (28,), 0.5),
    "mnist-cnn-18": Model(_fedproto_cnn(5, 18), None, (28,), 0.5),
    "mnist-cnn-22": Model(_fedproto_cnn(5, 22), None, (28,), 0.5),
    "femnist-cnn": Model(_fedproto_cnn(3, 20), None, (128,), 0.5),
    "femnist-cnn-18": Model(_fedproto_cnn(3, 18), None, (128,), 0.5),
    "femnist-cnn-22": Model(_fedproto_cnn(3, 22), None, (128,), 0.5),
    "resnet-18-7x7": Model(_resnet_7x7(2, 2), None, range(32, 1025)),
    "resnet-18-7x7-stride-1-4": Model(_resnet_7x7(1, 4), None, range(32, 1025)),
}

_HETEROGENEOUS = {
    "mnist-cnn": (("mnist-cnn-18", 7), ("mnist-cnn", 7), ("mnist-cnn-22", 6)),
    "femnist-cnn": (("femnist-cnn-18", 7), ("femnist-cnn", 7), ("femnist-cnn-22", 6)),
    "resnet-18-7x7": (("resnet-18-7x7-stride-1-4", 10), ("resnet-18-7x7", 10)),
}


def heterogeneous(name: str, num_clients: int) -> list[str]:
    """The network of each client in FedProto's model-heterogeneous setting ("Model heterogeneity simulations").

    Of 20 clients the code gives 18, 20 and 22 channels in the second convolution to the first 7, the next 7 and
    the last 6; of ResNet-18, strides (1, 4) of the first convolution and of the max-pooling to the first 10 and
    (2, 2) to the others. Other numbers of clients are divided in the same proportions.

    Parameters
    ----------
    name
        ``"mnist-cnn"``, ``"femnist-cnn"`` or ``"resnet-18-7x7"``.

    Raises
    ------
    ValueError
        If the network has no such variants.
    """
    if name not in _HETEROGENEOUS:
        raise ValueError(
            f"Model {name!r} has no variants for heterogeneous clients; these have: {', '.join(_HETEROGENEOUS)}."
        )
    of_twenty = [variant for variant, number in _HETEROGENEOUS[name] for _ in range(number)]
    return [of_twenty[(2 * i + 1) * 10 // num_clients] for i in range(num_clients)]


def build(
    name: str,
    num_classes: int,
    *,
    channels: int = 3,
    projection_head: bool = True,
    projection_dim: int | None = None,
    side: int = 32,
    pretrained: bool = False,
    precision: str = "float32",
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
        False puts the output layer directly on the encoder (MOON, Table 7). FedProto's networks have no head.
    projection_dim
        Width D of the projection head's output; None is the model's own (256 for the papers' networks).
    pretrained
        Put torchvision's ImageNet weights into all of a ResNet-18 with 7x7 stem but its first convolution and
        normalisation and its output layer, as FedProto's code does. They are downloaded once, to torch's cache.
    precision
        A key of ``PRECISIONS``: ``"bf16"`` computes convolutions and matrix products in bfloat16.

    Raises
    ------
    ValueError
        If the name is unknown, or the network has no projection head or does not fit images of that size, or there are
        no ImageNet weights for it.
    """
    if name not in MODELS:
        raise ValueError(f"Unknown model {name!r}; known: {', '.join(MODELS)}.")
    model = Model(*MODELS[name])
    if side not in model.sides:
        raise ValueError(
            f"Model {name!r} does not take images of {side}x{side} pixels; "
            f"it takes sides of {min(model.sides)} to {max(model.sides)}."
        )
    if projection_head and model.head is None:
        raise ValueError(f"Model {name!r} has no projection head: build it with projection_head=False.")
    with seeds.torch_seed(seed, "initial weights"):
        encoder, num_features = model.encoder(channels, side)
        widths = (model.head[0], projection_dim or model.head[1]) if projection_head else None
        net = Net(encoder, num_features, num_classes, widths, model.dropout, PRECISIONS[precision])
    if pretrained:
        net.encoder.load_state_dict(_imagenet_weights(name), strict=False)
    return net


def _imagenet_weights(name: str) -> dict[str, Tensor]:
    """ImageNet weights of all layers but the first two and the last."""
    if not name.startswith("resnet-18-7x7"):
        raise ValueError(f"There are no ImageNet weights for model {name!r}: leave pretrained at None or False.")
    from torchvision.models import resnet

    try:
        weights = resnet.ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=False)
    except (OSError, RuntimeError) as error:  # no network, or an incomplete file
        file = resnet.ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
        raise ValueError(
            f"ResNet-18's ImageNet weights cannot be loaded ({error}): connect to the internet once, or put {file} into "
            f"{torch.hub.get_dir()}/checkpoints, or start from random weights with pretrained=False."
        ) from error
    return {key: value for key, value in weights.items() if not key.startswith(("conv1.", "bn1.", "fc."))}


def num_parameters(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters())
