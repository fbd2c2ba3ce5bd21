"""What the kernels of all clients have in common. They need Triton: on a GPU alone is this imported.

A client's numbers lie anywhere: kernels get the distance from one client to the next, which is 0
where all share them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# What a kernel is given when it is called. No kernel is compiled anew where a number is 1 or where
# an address can be divided by 16: that gains nothing here, and each compilation takes a second.
GIVEN = """
    x w bias y code dy dx dw db parts out logits labels loss gradient norm images index draws position
    who scale shift x_k w_k bias_k n chunk splits num_x capacity B eps
""".split()


def compiled(kernel: Any) -> Any:
    """Return a kernel that is compiled once for each set of its constants."""
    constants = kernel.__annotations__
    given = [name for name in GIVEN if name not in constants]  # some releases refuse constants here
    return triton.jit(kernel, do_not_specialize=given)


@triton.jit
def block(first, i, j, height, width, row, column):
    """Load rows i, columns j of a matrix [height, width] whose rows and columns lie so far apart.

    What is beyond its sides is 0.
    """
    inside = (i < height)[:, None] & (j < width)[None, :]
    return tl.load(first + i[:, None] * row + j[None, :] * column, mask=inside, other=0.0)


def power(n: int) -> int:
    """Return the power of two that is n or the next after it."""
    return triton.next_power_of_2(n)


def rows(value: Tensor) -> Tensor:
    """Return the same [k, ...] with each client's numbers one after the other, copied if needed."""
    if value[0].is_contiguous():
        return value
    if value.stride(0) == 0:  # one for all
        return value[:1].contiguous().expand_as(value)
    return value.contiguous()


class ForAllClients(torch.autograd.Function):
    """Under `torch.vmap`: a function of tensors [k, ...] in the place of each client's own."""

    @staticmethod
    def forward(function: type[torch.autograd.Function], *given: Any) -> Tensor:
        raise RuntimeError("this is for torch.vmap alone")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any, in_dims: tuple[Any, ...], function: type[torch.autograd.Function], *given: Any
    ) -> tuple[Tensor, int]:
        stacked = []
        for value, dim in zip(given, in_dims[1:], strict=True):
            if isinstance(value, Tensor) and dim is None:  # one for all
                value = value.expand(info.batch_size, *value.shape)
            elif isinstance(value, Tensor):
                value = value.movedim(dim, 0)
            stacked.append(value)
        return function.apply(*stacked), 0
