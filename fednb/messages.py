"""What crosses between client and server, its mean, and its size."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

State = dict[str, Tensor]  # a model's parameters and buffers by name
Message = dict[str, Any]  # tensors, or dicts of tensors: all that ever crosses
Server = dict[str, Any]  # what the server keeps from round to round


def flat(model: nn.Module, buffers: bool = False) -> Tensor:
    """Return a model's parameters as one vector w, [P]; with ``buffers`` its float buffers, too."""
    values: list[Tensor] = list(model.parameters())
    if buffers:
        values += [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    return torch.cat([value.reshape(-1) for value in values])


def average(states: Sequence[State], weights: Sequence[float]) -> State:
    """Return the weighted mean of model states, entry by entry, BatchNorm's buffers included.

    ``weights`` are divided by their sum: FedAvg gives the clients' numbers of images (McMahan et
    al. 2017, algorithm 1). Counters, such as BatchNorm's number of batches, are rounded to whole
    numbers.
    """
    total = float(sum(weights))
    shares = [float(weight) / total for weight in weights]
    mean: State = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            mean[name] = first * shares[0]
            for state, share in zip(states[1:], shares[1:], strict=True):
                mean[name].add_(state[name], alpha=share)
        else:
            exact = torch.zeros_like(first, dtype=torch.double)
            for state, share in zip(states, shares, strict=True):
                exact += state[name].double() * share
            mean[name] = exact.round().to(first.dtype)
    return mean


def message_size(message: Message) -> dict[str, tuple[int, int]]:
    """Count numbers and bytes of each entry of a message; a `TypeError` for all but tensors."""
    sizes = {}
    for name, value in message.items():
        leaves = tree_leaves(value)
        if not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise TypeError(
                f"A message holds tensors and dicts of tensors; {name} holds something else."
            )
        sizes[name] = sum(leaf.numel() for leaf in leaves), sum(leaf.nbytes for leaf in leaves)
    return sizes
