"""FedAvg, the base of all methods: a method overrides some of its answers, and the federation does the rest."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fednb import seeds
from fednb.hyperparameters import check_fields
from fednb.models import Net, seed_dropout

if TYPE_CHECKING:
    from fednb.federation import Federation

State = dict[str, Tensor]  # a model's parameters and buffers by name
Message = dict[
    str, Any
]  # tensors, or dicts of tensors: all that ever crosses between client and server
Server = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """How clients train; the same for every method."""

    num_rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    keep_last: bool | None = None  # train on the last, incomplete batch of an epoch too
    local_steps: int | None = None  # at most so many SGD steps in a phase; None: whole epochs


@dataclass(frozen=True)
class Phase:
    """A stretch of local training: epochs, or `Training.local_steps`, of the parameters whose name ``trains`` accepts."""

    epochs: int
    trains: Callable[[str], bool] = lambda name: True


@dataclass(eq=False, repr=False)
class Client:
    """One client: its data and its memory, which outlive a round, and the network that it has in hand while it works."""

    id: int
    indices: Tensor  # its training images, int64 [n]
    labels: Tensor  # of these images, [n]
    architecture: Hashable  # clients of equal architecture have networks of the same shape
    training: Training
    _federation: "Federation"
    memory: dict[str, Any] = field(
        default_factory=dict
    )  # what it keeps for itself; written by `FedAvg.upload` alone
    model: Net | None = None  # while it works
    masks: torch.Generator | None = None  # what the dropout of its model draws from
    steps: int = 0  # SGD steps of this round so far
    losses: dict[str, Tensor] = field(
        default_factory=dict
    )  # sums of each loss term over these steps
    held: int = 0  # bytes that it held beside its network when it last trained: see `held_bytes`

    @property
    def num_samples(self) -> int:
        return len(self.indices)

    @property
    def classes(self) -> Tensor:
        """Of which of the K classes the client has training images, boolean [K]."""
        return self.labels.bincount(minlength=self._federation.dataset.num_classes) > 0

    def load(self, received: Message) -> None:
        """Put weights into the model, in eval mode and trainable: initial ones, over them own, over them received ones."""
        initial = self._federation.initial[self.architecture]
        self.model.load_state_dict(
            {**initial, **self.memory.get("model", {}), **received.get("model", {})}
        )
        self.model.eval().requires_grad_(True)

    def seed_masks(self, seed: int) -> None:
        """Let the dropout of the model draw its masks anew, from this seed."""
        device = self.indices.device
        self.masks = torch.Generator(device).manual_seed(seed)
        seed_dropout(self.model, partial(torch.rand, generator=self.masks, device=device))

    def random_weights(self) -> State:
        """Weights of an untrained network of the client's own: the common initial ones, each tensor in another order."""
        # torch's initialisers draw from its global generator, which clients that work side by side cannot share
        rng = seeds.generator(self._federation.seed, "random weights", 0, self.id)
        initial = self._federation.initial[self.architecture]
        return {
            name: v.flatten()[torch.from_numpy(rng.permutation(v.numel()))].view_as(v)
            for name, v in initial.items()
        }

    @torch.no_grad()
    def representations(self) -> tuple[Tensor, Tensor]:
        """Representations [n, D] and labels [n] of the client's own images: model in eval mode, no augmentation."""
        self.model.eval()
        return torch.cat(
            [self.model(x).representation for x in self._federation.plain_batches(self.indices)]
        ), self.labels


def flat(model: nn.Module, buffers: bool = False) -> Tensor:
    """All parameters of a model as one vector w, [P]; with ``buffers`` also its floating-point buffers."""
    more = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if buffers else []
    return torch.cat([values.reshape(-1) for values in [*model.parameters(), *more]])


def average(states: Sequence[State], weights: Sequence[float]) -> State:
    """Weighted mean of model states, entry by entry, BatchNorm buffers included; weights are divided by their sum."""
    shares = [float(w) / float(sum(weights)) for w in weights]
    mean: State = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            mean[name] = first * shares[0]
            for state, share in zip(states[1:], shares[1:], strict=True):
                mean[name].add_(state[name], alpha=share)
        else:  # counters such as BatchNorm's num_batches_tracked
            exact = sum(
                state[name].double() * share for state, share in zip(states, shares, strict=True)
            )
            mean[name] = exact.round().to(first.dtype)
    return mean


@dataclass
class FedAvg:
    """Federated averaging (McMahan et al. 2017), and the default answers of every other method.

    A subclass is a dataclass whose fields are its hyperparameters; one that is annotated with a type such as `Positive`,
    or with a ``Literal``, is checked. `loss` and `predict` are pure functions of tensors, with no branch on data, so that
    they run eagerly, compiled, batched over clients, or in a CUDA graph.
    """

    personal: ClassVar[bool] = (
        False  # True: clients end with models of their own, which are evaluated one by one
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, model: Net, num_clients: int) -> Server:
        """The server's first state."""
        return {"model": self._shared_of(model.state())}

    def shared(self, name: str) -> bool:
        """Does this entry of the model travel?"""
        return True

    def broadcast(self, server: Server, client_id: int) -> Message:
        """What the server sends to a client. Pure; draws nothing."""
        return {"model": server["model"]}

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """Once per round: everything that `loss` and `predict` may read. The model is loaded; memory is only read."""
        return {}

    def plan(self, client: Client, t: int) -> list[Phase]:
        """The local phases of round ``t``."""
        return [Phase(client.training.local_epochs)]

    def optimizer(
        self, client: Client, parameters: list[nn.Parameter], given: dict[str, Any]
    ) -> torch.optim.Optimizer:
        """A new optimiser for each client, round and phase, as in the papers' code."""
        s = client.training
        return torch.optim.SGD(
            parameters, s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
        )

    def loss(self, model: Net, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Named scalar terms on a batch x [B, C, H, W], y [B]; their sum is minimised, each is logged."""
        return {"cross_entropy": F.cross_entropy(model(x).logits, y)}

    def upload(self, client: Client, given: dict[str, Any]) -> Message:
        """What the client sends back after training. The only place that writes the client's memory."""
        state = client.model.state()
        sent = self._shared_of(state)
        if kept := {name: value for name, value in state.items() if name not in sent}:
            client.memory["model"] = kept
        return {"model": sent, "num_samples": torch.tensor(client.num_samples)}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        """The server's next state. All of the server's random draws happen here, keyed by ``server["seed"]``.

        Each upload also holds the number of the client that it comes from, as ``"client"``.
        """
        weights = [int(u["num_samples"]) for u in uploads]
        return {**server, "model": average([u["model"] for u in uploads], weights)}

    def predict(self, model: Net, x: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Named read-outs, each [B, K]: the class with the largest value is the prediction. The first one is reported."""
        return {"classifier": model(x).logits}

    def round(
        self, federation: "Federation", server: Server, clients: list[Client], t: int
    ) -> Server:
        """One communication round."""
        return self.aggregate(server, federation.exchange(server, clients, t), t)

    def _shared_of(self, state: State) -> State:
        return {name: value for name, value in state.items() if self.shared(name)}


def message_size(message: Message) -> dict[str, tuple[int, int]]:
    """Numbers and bytes of each entry of a message."""
    leaves = {name: tree_leaves(value) for name, value in message.items()}
    for name, found in leaves.items():
        if not all(isinstance(value, Tensor) for value in found):
            raise TypeError(
                f"A message holds tensors and dicts of tensors; {name} holds something else."
            )
    return {
        name: (sum(v.numel() for v in found), sum(v.nbytes for v in found))
        for name, found in leaves.items()
    }


def held_bytes(client: Client, given: dict[str, Any]) -> int:
    """Bytes of the tensors that a client holds beside the network that it trains: its memory and what it is given.

    A tensor that is in both counts once. What the memory has as ``model`` is the network itself between rounds.
    """
    held = [
        v for v in tree_leaves([{**client.memory, "model": None}, given]) if isinstance(v, Tensor)
    ]
    sizes = {
        value.data_ptr(): value.nbytes for value in sorted(held, key=lambda value: value.nbytes)
    }  # the largest wins
    return sum(sizes.values())
