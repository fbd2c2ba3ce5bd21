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

from fednb.federation import Federation
from fednb.gpu.layers import MatrixLayers
from fednb.method import FedAvg
from fednb.models import Net


def have_kernels(device: torch.device) -> bool:
    """Is there Triton for this device?"""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def kernels() -> tuple[ModuleType, ModuleType]:
    """The files of kernels: they need Triton, so they are imported when the first one is used."""
    from fednb.gpu import convolution, dense

    return convolution, dense


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


class LossModule(nn.Module):
    """A method's loss as a module, so that `functional_call` can give its network other weights."""

    def __init__(self, method: FedAvg, model: Net) -> None:
        super().__init__()
        self.method = method
        self.model = model

    def forward(self, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        return self.method.loss(self.model, x, y, given)


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


class RectifiedLinear(nn.Module):
    """A linear layer and ReLU as one layer, with the parameters of the linear one."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """From x [B, in] to [B, out]."""
        y = linear(x, self.weight, self.bias, relu=True)
        return F.relu(F.linear(x, self.weight, self.bias)) if y is None else y


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
        if type(layer) is nn.Linear and isinstance(followers[0], nn.ReLU):
            block[i] = RectifiedLinear(layer)
            block[i + 1] = nn.Identity()
        elif type(layer) is nn.Conv2d and is_halving(followers):
            block[i] = PooledConvolution(layer)
            block[i + 1] = nn.Identity()
            block[i + 2] = nn.Identity()


def is_halving(layers: list[nn.Module]) -> bool:
    """Are these max-pooling by windows of 2x2 side by side, and ReLU?"""
    if len(layers) < 2 or not isinstance(layers[1], nn.ReLU):
        return False
    pool = layers[0]
    if not isinstance(pool, nn.MaxPool2d):
        return False
    options = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    return options == (2, 2, 0, 1, False)


def is_stacked(*tensors: Tensor | None) -> bool:
    """Is one of these under `torch.vmap`?"""
    given = [tensor for tensor in tensors if tensor is not None]
    return any(torch._C._functorch.is_batchedtensor(tensor) for tensor in given)


def in_autocast(*tensors: Tensor | None) -> list[Any]:
    """The tensors, in the type that `torch.autocast` prescribes to products."""
    device = next(tensor.device.type for tensor in tensors if tensor is not None)
    if not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


def reads_batches(federation: Federation) -> bool:
    """Can a kernel read its batches, as `Images.inputs` does? It cannot rotate images."""
    has_bytes = federation.images.train.dtype == torch.uint8
    has_floats = federation.images.constants[0].dtype == torch.float32
    return has_bytes and has_floats and not federation.dataset.augmentation.rotation


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
    """`torch.nn.functional.conv2d`; where it is ``pooled``, with 2x2 max-pooling and ReLU."""
    is_plain = groups == 1 and not isinstance(padding, str) and max(dilation) == 1
    if not is_stacked(x, weight, bias) or not is_plain or max(stride) > 2:
        return None
    convolution, _ = kernels()
    x, weight, bias = in_autocast(x, weight, bias)
    if not convolution.fits(x, weight):
        return None
    return convolution.convolution(x, weight, bias, convolution.Layer(stride, padding, pooled))


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False
) -> Tensor | None:
    """`torch.nn.functional.linear`; with ``relu``, not below 0."""
    if not is_stacked(x, weight, bias):
        return None
    convolution, dense = kernels()
    x, weight, bias = in_autocast(x, weight, bias)
    if not dense.fits_linear(x, weight):
        return None
    return convolution.ForAllClients.apply(dense.Linear, x, weight, bias, relu)


def cross_entropy(logits: Tensor, labels: Tensor, **options: Any) -> Tensor | None:
    """`torch.nn.functional.cross_entropy`, the mean over images, with no other option."""
    defaults = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
    is_plain = all(value == defaults.get(name) for name, value in options.items())
    if not is_plain or not is_stacked(logits, labels):
        return None
    convolution, dense = kernels()
    if not dense.fits_cross_entropy(logits, labels):
        return None
    return convolution.ForAllClients.apply(dense.CrossEntropy, logits, labels)


def normalise(
    x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor | None:
    """`torch.nn.functional.normalize` over the last dimension."""
    is_plain = p == 2.0 and dim in (-1, x.ndim - 1) and out is None
    if not is_plain or not is_stacked(x) or x.dtype != torch.float32:
        return None
    convolution, dense = kernels()
    return convolution.ForAllClients.apply(dense.Normalise, x, eps)


KERNELS: dict[Callable, Callable] = {
    F.conv2d: small_convolution,
    F.linear: linear,
    F.cross_entropy: cross_entropy,
    F.normalize: normalise,
}
