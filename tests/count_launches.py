"""How many kernels a step of all clients launches: ``python tests/count_launches.py`` prints the table for all methods.

Counted on a CPU as in `test_stacked`. Triton's kernels are counted and not run, so nothing is computed that they compute.
"""

import sys
from contextlib import ExitStack
from unittest.mock import patch

import torch
from core.test_stacked import METHODS, OPTIONS, Watch
from in_interpreter import federation
from torch.utils._python_dispatch import _disable_current_modes

from fednb.gpu import convolution, dense, stack, stacked

KERNELS = {
    convolution: ["_forward", "_weight_gradient", "_spread"],
    dense: [
        "_linear",
        "_linear_gradients",
        "_cross_entropy",
        "_normalise",
        "_normalise_gradient",
        "_read_batch",
    ],
}


class Counted:
    """In the place of a kernel: counts its launches, and fills what it is given to write with zeros."""

    def __init__(self, kernel, launched):
        self.names, self.launched = kernel.arg_names, launched

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *args, **options):
        self.launched.append(self.names)
        for name, value in zip(self.names, args, strict=False):
            is_written = name in ("y", "dx", "dw", "db", "parts", "loss", "gradient", "norm", "out")
            is_read = "dy" in self.names and name in ("y", "norm")
            if isinstance(value, torch.Tensor) and is_written and not is_read:
                with _disable_current_modes():
                    value.detach().zero_()


def count(name, kernels, rounds=2):
    """The largest number of launches of a step in these rounds, of the simple CNN on 32x32 images."""
    found, launched = [], []
    step = stack.StackedClients._step

    def watch(clients, shape):
        before = len(launched)
        with Watch() as watching:
            step(clients, shape)
        found.append(watching.count + len(launched) - before)

    with ExitStack() as patches:
        patches.enter_context(patch.object(stack.StackedClients, "_step", watch))
        for module, names in KERNELS.items() if kernels else ():
            for kernel in names:
                counted = Counted(getattr(module, kernel), launched)
                patches.enter_context(patch.object(module, kernel, counted))
        trainer = stacked.StackedTrainer(check=False, kernels=kernels)
        method = METHODS[name](**OPTIONS.get(name, {}))
        fed = federation(method, trainer, "simple-cnn", (3, 32, 32))
        for _ in range(rounds):
            clients = fed.sample(fed.rounds_done)
            fed.server = fed.method.round(fed, fed.server, clients, fed.rounds_done)
            fed.rounds_done += 1
    return max(found, default=0), len(launched)


if __name__ == "__main__":
    print(f"{'method':20}{'products':>10}{'kernels':>10}")
    for name in sys.argv[1:] or METHODS:
        counts = []
        for kernels in (False, True):
            try:
                counts.append(count(name, kernels)[0])
            except Exception as error:
                counts.append(f"{type(error).__name__}: {error}"[:60])
        print(f"{name:20}{counts[0]:>10}{counts[1]:>10}", flush=True)
