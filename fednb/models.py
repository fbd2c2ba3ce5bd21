"""The papers' networks. Each returns its representation and its logits."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fednb import seeds
from fednb.errors import require_known


class Output(NamedTuple):
    """What a model returns for a batch of B images."""

    representation: Tensor  # z, [B, D]: the vector that the output layer sees
    logits: Tensor  # [B, K]


Draw = Callable[[Sequence[int]], Tensor]  # uniform numbers in [0, 1) of a shape


class Dropout(nn.Module):
    """In train mode zero each value (or channel) with probability p, scale the rest by 1 / (1 - p).

    It draws from what `seed_dropout` gives it: torch's own dropout shares a generator with clients
    that train side by side.
    """

    def __init__(self, p: float, channelwise: bool = False) -> None:
        super().__init__()
        self.p, self.channelwise = p, channelwise
        self.draw: Draw | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return x, with zeros in train mode; a ``RuntimeError`` if it has nothing to draw from."""
        if not self.training:
            return x
        if self.draw is None:
            raise RuntimeError(
                "Dropout has nothing to draw from: call seed_dropout(model, draw) before training."
            )
        # uniform numbers instead of bernoulli_, which draws other numbers on machines without MKL
        channels = (*x.shape[:2], *[1] * (x.ndim - 2))
        keep = self.draw(channels if self.channelwise else x.shape) >= self.p
        return x * keep / (1 - self.p)


def seed_dropout(model: nn.Module, draw: Draw) -> None:
    """Let all dropout of a network draw its masks by ``draw``, one after the other."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.draw = draw


class Net(nn.Module):
    """Encoder, projection head, output layer (MOON, section 3.3).

    The encoder maps images [B, C, H, W] to features, the head these to representations z [B, D], or
    it is the identity. ``dropout`` is the probability with which the output layer does not see a
    value of z.
    """

    def __init__(
        self, encoder: nn.Module, head: nn.Module, classifier: nn.Linear, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.classifier = classifier
        self.dropout = Dropout(dropout) if dropout else nn.Identity()
        # the same network without weights, in eval mode, up to its representation; in a tuple, so
        # as to be no part of this
        shape = copy.deepcopy(self).to("meta").eval().requires_grad_(False)
        shape.dropout = nn.Identity()
        shape.classifier = cast(nn.Linear, nn.Identity())
        self._shape = (shape,)

    def classify(self, z: Tensor) -> Tensor:
        """Return logits [B, K] of representations z [B, D]."""
        return self.classifier(self.dropout(z))

    def forward(self, x: Tensor) -> Output:
        """Return representations z [B, D] and logits [B, K] of images x [B, C, H, W]."""
        z = self.head(self.encoder(x))
        return Output(z, self.classify(z))

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the parameters and buffers by name."""
        return {name: value.detach().clone() for name, value in self.state_dict().items()}

    @torch.no_grad()
    def frozen(self, states: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Return representations [m, B, D] of images x [B, C, H, W] by m networks of this shape.

        Their states are given. They are in eval mode and get no gradient; this network's own mode,
        weights and BatchNorm buffers play no part.
        """
        (shape,) = self._shape
        outputs = [torch.func.functional_call(shape, dict(state), (x,)) for state in states]
        return torch.stack([output.representation for output in outputs])


class Model(NamedTuple):
    """How a network is built."""

    # from channels and side of images to a network and its width
    encoder: Callable[[int, int], tuple[nn.Module, int]]
    head: tuple[int, int] | None  # widths of the projection head; None: it never has one
    sides: Sequence[int]  # of the images that fit
    dropout: float = 0.0  # before the output layer


def _cnn(
    convolutions: Sequence[tuple[int, int]],
    linear: Sequence[int],
    channels: int,
    side: int,
    *,
    padding: int = 0,
    dropout: float = 0.0,
) -> tuple[nn.Module, int]:
    """Convolutions (width, kernel) with max-pooling and ReLU, then linear layers (width) with ReLU.

    The last convolution has channel dropout. Linear layers are called fc1, fc2, ..., so that a
    method can tell them by name.
    """
    layers: list[nn.Module] = []
    for i, (width, kernel) in enumerate(convolutions, 1):
        layers.append(nn.Conv2d(channels, width, kernel, padding=padding))
        if dropout and i == len(convolutions):
            layers.append(Dropout(dropout, channelwise=True))
        # they commute; in this order ReLU has a quarter of the work
        layers += [nn.MaxPool2d(2), nn.ReLU()]
        channels, side = width, (side + 2 * padding - kernel + 1) // 2
    encoder = nn.Sequential(*layers, nn.Flatten())
    width = channels * side**2
    for i, out in enumerate(linear, 1):
        encoder.add_module(f"fc{i}", nn.Linear(width, out))
        encoder.append(nn.ReLU())
        width = out
    return encoder, width


def _resnet(
    blocks: list[int],
    channels: int,
    side: int,
    *,
    width: int = 64,
    bottleneck: bool = False,
    strides: Sequence[int] = (),
) -> tuple[nn.Module, int]:
    """torchvision's ResNet for any side: ``blocks`` in stages of 1, 2, 4 and 8 times ``width``.

    With ``strides`` of its 7x7 convolution and max-pooling its stem is that for ImageNet, else a
    3x3 convolution alone.
    """
    from torchvision.models import resnet  # slow to import

    block = resnet.Bottleneck if bottleneck else resnet.BasicBlock
    net = resnet.ResNet(block, blocks)
    num_features = net.fc.in_features * width // 64
    if width != 64:  # torchvision's basic blocks know no other width
        net.inplanes, net.bn1 = width, nn.BatchNorm2d(width)
        for i, number in enumerate(blocks):
            layer = net._make_layer(block, width * 2**i, number, stride=1 if i == 0 else 2)
            setattr(net, f"layer{i + 1}", layer)
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    if strides:
        net.conv1 = nn.Conv2d(channels, width, 7, stride=strides[0], padding=3, bias=False)
        net.maxpool = nn.MaxPool2d(3, stride=strides[1], padding=1)
    else:
        net.conv1, net.maxpool = nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.Identity()
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.fc = nn.Identity()
    return net, num_features


def _fedproto_cnn(kernel: int, width: int, side: int) -> Model:
    """FedProto's CNN, with the kernels, widths and dropout of its code."""
    return Model(partial(_cnn, [(10, kernel), (width, 5)], [50], dropout=0.5), None, [side], 0.5)


# sides of images for ResNets with the stem for CIFAR and for ImageNet
ANY = range(8, 1025)
ANY_7X7 = range(32, 1025)
MODELS = {
    # for the embedded digits
    "digits-cnn": Model(partial(_cnn, [(16, 3), (32, 3)], [64], padding=1), (64, 64), [8, 16]),
    # MOON, section 4.1
    "simple-cnn": Model(partial(_cnn, [(6, 5), (16, 5)], [120, 84]), (84, 256), [28, 32]),
    "resnet-10": Model(partial(_resnet, [1, 1, 1, 1]), (512, 256), ANY),
    # a sixteenth of its work, for a CPU
    "resnet-10-16": Model(partial(_resnet, [1, 1, 1, 1], width=16), (128, 256), ANY),
    "resnet-18": Model(partial(_resnet, [2, 2, 2, 2]), (512, 256), ANY),
    "resnet-50": Model(partial(_resnet, [3, 4, 6, 3], bottleneck=True), (2048, 256), ANY),
    # FedProto, and its variants for heterogeneous clients: all of a family have representations of
    # one width
    "mnist-cnn": _fedproto_cnn(5, 20, 28),
    "mnist-cnn-18": _fedproto_cnn(5, 18, 28),
    "mnist-cnn-22": _fedproto_cnn(5, 22, 28),
    "femnist-cnn": _fedproto_cnn(3, 20, 128),
    "femnist-cnn-18": _fedproto_cnn(3, 18, 128),
    "femnist-cnn-22": _fedproto_cnn(3, 22, 128),
    "resnet-18-7x7": Model(partial(_resnet, [2, 2, 2, 2], strides=(2, 2)), None, ANY_7X7),
    "resnet-18-7x7-stride-1-4": Model(
        partial(_resnet, [2, 2, 2, 2], strides=(1, 4)), None, ANY_7X7
    ),
}
# FedProto's model-heterogeneous clients ("Model heterogeneity simulations"): how many of twenty
# have which network
OF_TWENTY_CLIENTS = {
    "mnist-cnn": {"mnist-cnn-18": 7, "mnist-cnn": 7, "mnist-cnn-22": 6},
    "femnist-cnn": {"femnist-cnn-18": 7, "femnist-cnn": 7, "femnist-cnn-22": 6},
    "resnet-18-7x7": {"resnet-18-7x7-stride-1-4": 10, "resnet-18-7x7": 10},
}


def heterogeneous(name: str, num_clients: int) -> list[str]:
    """Name each client's network, in the proportions of FedProto's twenty heterogeneous clients.

    A `SettingsError` if the network has no variants.
    """
    require_known("There are no variants for heterogeneous clients of", name, OF_TWENTY_CLIENTS)
    twenty = [variant for variant, number in OF_TWENTY_CLIENTS[name].items() for _ in range(number)]
    return [twenty[(2 * i + 1) * 10 // num_clients] for i in range(num_clients)]


def build(
    name: str,
    num_classes: int,
    *,
    channels: int = 3,
    projection_head: bool = True,
    projection_dim: int | None = None,
    side: int = 32,
    pretrained: bool = False,
    seed: int = 0,
) -> Net:
    """Build a network of ``MODELS`` for images [channels, side, side], with a seed's weights.

    Without ``projection_head`` the output layer is directly on the encoder (MOON, Table 7), as in
    FedProto's networks. ``projection_dim`` is the width D of the head's output, by default the
    model's own. ``pretrained`` puts torchvision's ImageNet weights into a ResNet-18 with 7x7 stem,
    as FedProto's code does; they are downloaded once, to torch's cache.
    """
    model = MODELS[name]
    with seeds.torch_seed(seed, "initial weights"):
        encoder, width = model.encoder(channels, side)
        head: nn.Module = nn.Identity()
        if projection_head and model.head:
            hidden, out = model.head[0], projection_dim or model.head[1]
            head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))
            width = out
        classifier = nn.Linear(width, num_classes)
        net = Net(encoder, head, classifier, model.dropout)
    if pretrained:
        net.encoder.load_state_dict(_imagenet_weights(name), strict=False)
    return net


def _imagenet_weights(name: str) -> dict[str, Tensor]:
    """ImageNet weights of all layers but the first two and the last."""
    if not name.startswith("resnet-18-7x7"):
        raise ValueError(
            f"There are no ImageNet weights for model {name!r}: leave pretrained at None or False."
        )
    from torchvision.models import ResNet18_Weights

    source = ResNet18_Weights.IMAGENET1K_V1
    try:
        weights = source.get_state_dict(progress=False)
    except (OSError, RuntimeError) as error:  # no network, or an incomplete file
        raise ValueError(
            f"ResNet-18's ImageNet weights cannot be loaded ({error}): connect to the internet "
            f"once, or put {source.url} into {torch.hub.get_dir()}/checkpoints, or start without, "
            "by pretrained=False."
        ) from error
    own = ("conv1.", "bn1.", "fc.")
    return {key: value for key, value in weights.items() if not key.startswith(own)}
