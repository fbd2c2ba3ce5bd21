"""A client: its images, what it keeps from round to round, and a network while it is at work."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from numpy.random import Generator
from torch import Tensor

from fednb import seeds
from fednb.batches import Images, Training
from fednb.messages import Message, State
from fednb.models import Net, seed_dropout


@dataclass(frozen=True)
class Phase:
    """Local training of the parameters whose name ``trains`` accepts, for so many epochs."""

    epochs: int
    trains: Callable[[str], bool] = lambda name: True


@dataclass(eq=False, repr=False)
class Client:
    """One client. A method reads what is here, and writes only ``memory``, after its training."""

    id: int
    indices: Tensor  # its training images among all, int64 [n]
    labels: Tensor  # their classes, int64 [n]
    architecture: Hashable  # clients of equal architecture have networks of the same shape
    images: Images  # of all clients
    training: Training
    initial: State  # weights with which all networks of its architecture begin
    seed: int  # the first of the four keys of every random draw
    # what it keeps for itself from round to round
    memory: dict[str, Any] = field(default_factory=dict)
    network: Net | None = None  # while it is at work: see `Federation.at_work`
    # what dropout of its network draws from
    dropout_generator: torch.Generator = field(default_factory=torch.Generator)
    steps: int = 0  # SGD steps of this round so far
    # each term of the loss, summed over these steps
    losses: dict[str, Tensor] = field(default_factory=dict)

    @property
    def num_samples(self) -> int:
        """How many training images it has."""
        return len(self.indices)

    @property
    def classes(self) -> Tensor:
        """Of which of the K classes it has training images, boolean [K]."""
        return self.labels.bincount(minlength=self.images.num_classes) > 0

    @property
    def model(self) -> Net:
        """The network of a client at work; one that is not at work has none: a ``RuntimeError``."""
        if self.network is None:
            raise RuntimeError(f"Client {self.id} has no model in hand: see Federation.at_work.")
        return self.network

    def load(self, received: Message) -> None:
        """Load initial weights, over them own, over them received ones; in eval mode, trainable."""
        kept = self.memory.get("model", {})
        self.model.load_state_dict({**self.initial, **kept, **received.get("model", {})})
        self.model.eval().requires_grad_(True)

    def set_trainable(self, phase: Phase) -> None:
        """Put the model in train mode, but for what the phase does not train."""
        model = self.model.train()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(phase.trains(name))
        for module in model.modules():  # a frozen layer must not move its BatchNorm buffers either
            parameters = list(module.parameters(recurse=False))
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                module.eval()

    def seed_dropout(self, seed: int) -> None:
        """Let dropout of the model draw from a new generator of its own with this seed."""
        device = self.indices.device
        self.dropout_generator = torch.Generator(device).manual_seed(seed)
        draw = partial(torch.rand, generator=self.dropout_generator, device=device)
        seed_dropout(self.model, draw)

    def batches(self, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield one epoch of its images, x [B, C, H, W] augmented and normalised, and y [B]."""
        for index, draws in self.images.epoch(self.indices, self.training, rng):
            yield self.images.inputs(index, draws), self.images.labels[index]

    @torch.no_grad()
    def representations(self) -> tuple[Tensor, Tensor]:
        """Return representations [n, D] and labels [n] of its images, in eval mode, as they are."""
        model = self.model.eval()
        batches = self.images.plain_batches(self.indices)
        return torch.cat([model(x).representation for x in batches]), self.labels

    def random_weights(self) -> State:
        """Return weights of an untrained network: the initial ones, each tensor shuffled."""
        # torch's initialisers draw from its global generator, which clients that work side by side
        # cannot share
        rng = seeds.generator(self.seed, "random weights", 0, self.id)
        weights = {}
        for name, value in self.initial.items():
            order = torch.from_numpy(rng.permutation(value.numel()))
            weights[name] = value.flatten()[order].view_as(value)
        return weights
