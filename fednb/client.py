"""A client: its data and memory, which outlive a round, and what it has in hand while it works."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fednb import seeds
from fednb.messages import Message, State
from fednb.models import Net, seed_dropout
from fednb.workspace import Training, Workspace


@dataclass(frozen=True)
class Phase:
    """Local training of the parameters whose name ``trains`` accepts, for so many epochs."""

    epochs: int
    trains: Callable[[str], bool] = lambda name: True


@dataclass(eq=False, repr=False)
class Client:
    """One client. A method reads what is here, and writes only ``memory``, after its training."""

    id: int
    indices: Tensor  # its training images, int64 [n]
    labels: Tensor  # of these images, [n]
    architecture: Hashable  # clients of equal architecture have networks of the same shape
    training: Training  # with the learning rate of the round that it is in
    workspace: Workspace
    # what it keeps for itself from round to round
    memory: dict[str, Any] = field(default_factory=dict)
    borrowed: Net | None = None  # a network while it works: see `Workspace.lend_model`
    # what the dropout of its model draws from
    masks: torch.Generator = field(default_factory=torch.Generator)
    steps: int = 0  # SGD steps of this round so far
    # sums of each loss term over these steps
    losses: dict[str, Tensor] = field(default_factory=dict)
    held: int = 0  # bytes that it held beside its network when it last trained: see `held_bytes`

    @property
    def num_samples(self) -> int:
        """How many training images it has."""
        return len(self.indices)

    @property
    def classes(self) -> Tensor:
        """Of which of the K classes it has training images, boolean [K]."""
        return self.labels.bincount(minlength=self.workspace.dataset.num_classes) > 0

    @property
    def model(self) -> Net:
        """The network that it has borrowed; a ``RuntimeError`` if it is not at work."""
        if self.borrowed is None:
            raise RuntimeError(f"Client {self.id} has no model in hand: see Workspace.lend_model.")
        return self.borrowed

    def load(self, received: Message) -> None:
        """Load initial weights, over them own, over them received ones; in eval mode, trainable."""
        initial = self.workspace.initial[self.architecture]
        kept = self.memory.get("model", {})
        self.model.load_state_dict({**initial, **kept, **received.get("model", {})})
        self.model.eval().requires_grad_(True)

    def seed_masks(self, seed: int) -> None:
        """Let the dropout of the model draw its masks anew, from this seed."""
        self.masks = torch.Generator(self.indices.device).manual_seed(seed)
        draw = partial(torch.rand, generator=self.masks, device=self.indices.device)
        seed_dropout(self.model, draw)

    def random_weights(self) -> State:
        """Weights of an untrained network of its own: the initial ones, each tensor shuffled."""
        # torch's initialisers draw from its global generator, which clients that work side by side
        # cannot share
        rng = seeds.generator(self.workspace.seed, "random weights", 0, self.id)
        weights = {}
        for name, value in self.workspace.initial[self.architecture].items():
            order = torch.from_numpy(rng.permutation(value.numel()))
            weights[name] = value.flatten()[order].view_as(value)
        return weights

    @torch.no_grad()
    def representations(self) -> tuple[Tensor, Tensor]:
        """Representations [n, D] and labels [n] of its images: eval mode, no augmentation."""
        model = self.model.eval()
        batches = self.workspace.plain_batches(self.indices)
        return torch.cat([model(x).representation for x in batches]), self.labels

    def set_trainable(self, phase: Phase) -> None:
        """Put the model in train mode, but for what the phase does not train."""
        model = self.model.train()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(phase.trains(name))
        for module in model.modules():  # a frozen layer must not move its BatchNorm buffers either
            parameters = list(module.parameters(recurse=False))
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                module.eval()


def held_bytes(client: Client, given: dict[str, Any]) -> int:
    """Bytes of the tensors that a client holds beside its network: its memory and what it is given.

    A tensor that is in both counts once. What the memory has as ``model`` is the network itself
    between rounds.
    """
    sizes: dict[int, int] = {}  # by address: of two views of the same numbers the larger one counts
    for leaf in tree_leaves([client.memory | {"model": None}, given]):
        if isinstance(leaf, Tensor):
            sizes[leaf.data_ptr()] = max(leaf.nbytes, sizes.get(leaf.data_ptr(), 0))
    return sum(sizes.values())
