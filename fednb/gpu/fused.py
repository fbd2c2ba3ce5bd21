"""Layers and losses by Triton's kernels: `fuse` a network, and train it in `KernelLayers`.

Outside `torch.vmap`, and where no kernel fits, they are what they are everywhere. This needs Triton:
`fednb.gpu.stack` imports it when the first kernel is used.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednb.gpu import dense
from fednb.gpu.convolution import Layer, convolution
from fednb.gpu.layers import MatrixLayers


class KernelLayers(MatrixLayers):
    """Inside this block the layers and losses of `torch.vmap` are kernels, where one fits."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        make = KERNELS.get(function)
        y = None if make is None else make(*args, **(kwargs or {}))
        if y is not None:
            return y
        return super().__torch_function__(function, types, args, kwargs)


class PooledConvolution(nn.Conv2d):
    """A convolution, the largest value of each 2x2 window, and ReLU, as one layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Map images x [B, C, H, W] to [B, out, H' // 2, W' // 2]."""
        options: Any = (self.stride, self.padding, self.dilation, self.groups)
        y = small_convolution(x, self.weight, self.bias, *options, pooled=True)
        return F.relu(F.max_pool2d(super().forward(x), 2)) if y is None else y


class RectifiedLinear(nn.Linear):
    """A linear layer and ReLU as one layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Map x [B, in] to [B, out]."""
        y = linear(x, self.weight, self.bias, relu=True)
        return F.relu(super().forward(x)) if y is None else y


def fuse(model: nn.Module) -> None:
    """Make one layer of each convolution that 2x2 max-pooling and ReLU follow, in place.

    And of each linear layer that ReLU follows; in what `Net.frozen` computes with too.
    """
    for network in (model, *getattr(model, "_shape", ())):
        for block in network.modules():
            if isinstance(block, nn.Sequential):
                _fuse_block(block)


def _fuse_block(block: nn.Sequential) -> None:
    for i in range(len(block) - 1):
        layer = block[i]
        followers = list(block[i + 1 : i + 3])
        # a layer keeps its parameters and options
        if type(layer) is nn.Linear and isinstance(followers[0], nn.ReLU):
            layer.__class__ = RectifiedLinear
            block[i + 1] = nn.Identity()
        elif type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and is_halving(followers):
            layer.__class__ = PooledConvolution
            block[i + 1] = nn.Identity()
            block[i + 2] = nn.Identity()


def is_halving(layers: list[nn.Module]) -> bool:
    """Tell whether these are max-pooling by windows of 2x2 side by side, and ReLU."""
    if len(layers) < 2 or not isinstance(layers[1], nn.ReLU):
        return False
    pool = layers[0]
    if not isinstance(pool, nn.MaxPool2d):
        return False
    options = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    return options == (2, 2, 0, 1, False)


def is_stacked(*tensors: Tensor | None) -> bool:
    """Tell whether one of these is under `torch.vmap`."""
    given = [tensor for tensor in tensors if tensor is not None]
    return any(torch._C._functorch.is_batchedtensor(tensor) for tensor in given)


# Each of the following is None where there is no torch.vmap, or no kernel fits.


def small_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
    groups: int,
    *,
    pooled: bool = False,
) -> Tensor | None:
    """Compute `torch.nn.functional.conv2d`; if ``pooled``, with 2x2 max-pooling and ReLU."""
    if isinstance(padding, str) or groups > 1 or max(dilation) > 1 or max(stride) > 2:
        return None
    if not is_stacked(x, weight, bias):
        return None
    return convolution(x, weight, bias, Layer(stride, padding, pooled))


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False
) -> Tensor | None:
    """Compute `torch.nn.functional.linear`; with ``relu``, not below 0."""
    if not is_stacked(x, weight, bias):
        return None
    return dense.linear(x, weight, bias, relu)


def cross_entropy(logits: Tensor, labels: Tensor, **options: Any) -> Tensor | None:
    """Compute `torch.nn.functional.cross_entropy`, the mean over images, without options."""
    defaults = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
    is_plain = all(value == defaults.get(name) for name, value in options.items())
    if not is_plain or not is_stacked(logits, labels):
        return None
    return dense.cross_entropy(logits, labels)


def normalise(
    x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor | None:
    """Compute `torch.nn.functional.normalize` over the last dimension."""
    is_plain = p == 2.0 and dim in (-1, x.ndim - 1) and out is None
    return dense.normalise(x, eps) if is_plain and is_stacked(x) else None


KERNELS: dict[Callable, Callable] = {
    F.conv2d: small_convolution,
    F.linear: linear,
    F.cross_entropy: cross_entropy,
    F.normalize: normalise,
}
