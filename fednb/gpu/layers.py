"""Layers as products of matrices, which `torch.vmap` over clients makes batched products.

Under vmap a convolution would become a grouped one with a group for each client, which cuDNN trains
slowly, and `torch.nn.functional.unfold` launches a kernel for each image of the batch (``im2col``,
a loop over the batch on CUDA). Patches that are views take one copy, whatever the number of clients
and images.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]


def patches(x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Copy the patches of images x [B, C, H, W] that a convolution multiplies.

    Return [C · rows · columns, B · H' · W'], where H' and W' are the height and width of its result.
    """
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    for dim in (0, 1):
        # from the first to the last pixel under the kernel
        reach = dilation[dim] * (kernel[dim] - 1) + 1
        x = x.unfold(2 + dim, reach, stride[dim])
    if max(dilation) > 1:
        x = x[..., :: dilation[0], :: dilation[1]]
    # now [B, C, H', W', rows, columns]; flattening makes the copy
    return x.permute(1, 4, 5, 0, 2, 3).flatten(3).flatten(0, 2)


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of x [B, C, H, W] without groups: [B, out, H', W']."""
    kernel = (weight.shape[2], weight.shape[3])
    y = weight.flatten(1) @ patches(x, kernel, stride, padding, dilation)
    if bias is not None:
        y = y + bias[:, None]
    height = (x.shape[2] + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    return y.view(len(weight), len(x), height, -1).transpose(0, 1)


class MatrixLayers(TorchFunctionMode):
    """Inside this block convolutions and linear layers are computed as products of matrices."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if function is F.linear:  # as addmm, vmap multiplies by factors of 1
            x, weight, bias = args
            y = x @ weight.mT
            return y if bias is None else y + bias
        if function is F.conv2d:
            x, weight, bias, stride, padding, dilation, groups = args
            if groups == 1 and not isinstance(padding, str):
                return convolution(x, weight, bias, stride, padding, dilation)
        return function(*args, **(kwargs or {}))
