"""Where there is Triton, a network's layers by its kernels: `fuse` a network, train in `KernelLayers`.

Outside `torch.vmap`, and where no kernel fits, layers are what they are everywhere.
"""

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednb.gpu.layers import MatrixLayers, Pair


def have_kernels(device: torch.device) -> bool:
    """Is there Triton for this device?"""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def kernels() -> ModuleType:
    """The file of kernels: it needs Triton, so it is imported when the first one is used."""
    from fednb.gpu import convolution

    return convolution


class KernelLayers(MatrixLayers):
    """Inside this block small convolutions under `torch.vmap` are kernels, and others products."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if function is F.conv2d:
            y = small_convolution(*args, pooled=False)
            if y is not None:
                return y
        return super().__torch_function__(function, types, args, kwargs)


class PooledConvolution(nn.Module):
    """A convolution, the largest value of each 2x2 window, and ReLU, as one layer.

    It has the parameters of the convolution that it takes the place of.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self.options: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)

    def forward(self, x: Tensor) -> Tensor:
        """From images x [B, C, H, W] to [B, out, H' // 2, W' // 2]."""
        y = small_convolution(x, self.weight, self.bias, *self.options, pooled=True)
        if y is not None:
            return y
        return F.relu(F.max_pool2d(F.conv2d(x, self.weight, self.bias, *self.options), 2))


def fuse(model: nn.Module) -> None:
    """Make one layer of each convolution that 2x2 max-pooling and ReLU follow, in place."""
    for block in model.modules():
        if not isinstance(block, nn.Sequential):
            continue
        for i in range(len(block) - 2):
            layer, pool, relu = block[i], block[i + 1], block[i + 2]
            halves = isinstance(pool, nn.MaxPool2d) and is_plain_pool(pool)
            if type(layer) is nn.Conv2d and halves and isinstance(relu, nn.ReLU):
                block[i] = PooledConvolution(layer)
                block[i + 1] = nn.Identity()
                block[i + 2] = nn.Identity()


def is_plain_pool(pool: nn.MaxPool2d) -> bool:
    """Does it halve both sides, by windows of 2x2 side by side?"""
    options = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    return options == (2, 2, 0, 1, False)


def small_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
    *,
    pooled: bool,
) -> Tensor | None:
    """The convolution by a kernel; None where that is not under vmap, or nothing for the kernels."""
    tensors = [x, weight, bias]
    is_stacked = any(
        tensor is not None and torch._C._functorch.is_batchedtensor(tensor) for tensor in tensors
    )
    is_plain = groups == 1 and not isinstance(padding, str) and max(dilation) == 1
    if not is_stacked or not is_plain or max(stride) > 2:
        return None
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        tensors = [None if tensor is None else tensor.to(dtype) for tensor in tensors]
    convolution = kernels()
    if not convolution.fits(*tensors[:2]):
        return None
    return convolution.convolution(*tensors, convolution.Layer(stride, padding, pooled))
