"""FedAvg, the base of all methods: the answers that a method gives, what it is given, and the average.

A method is what differs from FedAvg: it overrides some of the answers, and the federation does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednb import rules, seeds
from fednb.models import Net

if TYPE_CHECKING:
    from fednb.federation import Federation

State = dict[str, Tensor]  # a model's parameters and buffers by name
Message = dict[str, Any]  # tensors, or dicts of tensors: all that ever crosses between client and server
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
    """A stretch of local training: so many epochs, on the parameters whose name ``trains`` accepts.

    ``Training.local_steps`` may end it earlier. As epochs are counted per phase, so are steps: what an earlier phase
    did takes nothing from a later one.
    """

    epochs: int
    trains: Callable[[str], bool] = lambda name: True


class Client:
    """One client: its data and its memory, which outlive a round, and the model that it has while it works.

    Attributes
    ----------
    id, indices
        Number of the client; its training images, int64 [n].
    architecture
        Clients of equal architecture have networks of the same shape.
    memory
        What the client keeps for itself. Written by `FedAvg.upload` alone.
    model
        The network in the hands of the client while it works; otherwise None.
    steps
        SGD steps of this round so far.
    held
        Bytes that it held beside its network when it last trained: see `held_bytes`.
    """

    def __init__(self, id: int, indices: Tensor, architecture: Hashable, federation: Federation) -> None:
        self.id = id
        self.indices = indices
        self.architecture = architecture
        self.memory: dict[str, Any] = {}
        self.model: Net | None = None
        self.steps = 0
        self.losses: dict[str, Tensor] = {}
        self.held = 0
        self._federation = federation

    @property
    def num_samples(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """Labels of the client's training images, [n]."""
        return self._federation.labels[self.indices]

    @property
    def classes(self) -> Tensor:
        """Of which of the K classes the client has training images, boolean [K]."""
        mask = torch.zeros(self._federation.dataset.num_classes, dtype=torch.bool, device=self.indices.device)
        mask[self.labels] = True
        return mask

    @property
    def training(self) -> Training:
        return self._federation.training

    def load(self, received: Message) -> None:
        """Put weights into the model: the common initial ones, over them the client's own, over them the received.

        The model is then in eval mode and trainable, whoever had it in hand before.
        """
        initial = self._federation.initial(self.architecture)
        self.model.load_state_dict({**initial, **self.memory.get("model", {}), **received.get("model", {})})
        self.model.eval().requires_grad_(True)

    def state(self) -> State:
        """A copy of the model's parameters and buffers."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def seed_masks(self, seed: int) -> None:
        """Let the dropout of the model draw its masks anew, from this seed."""
        self._federation.masks[id(self.model)].manual_seed(seed)

    def random_weights(self) -> State:
        """Weights of a network of the client's own that was never trained, the same whenever they are asked for.

        They are the common initial ones, the entries of each tensor in another order: torch's initialisers draw
        from its global generator, which clients that work side by side cannot share.
        """
        rng = seeds.generator(self._federation.seed, "random weights", 0, self.id)
        initial = self._federation.initial(self.architecture)
        return {name: v.flatten()[torch.from_numpy(rng.permutation(v.numel()))].view_as(v) for name, v in initial.items()}

    @torch.no_grad()
    def representations(self) -> tuple[Tensor, Tensor]:
        """Representations [n, D] and labels [n] of the client's own images: model in eval mode, no augmentation."""
        self.model.eval()
        z = [self.model(x).representation for x in self._federation.plain_batches(self.indices)]
        return torch.cat(z), self.labels


def flat(model: nn.Module, buffers: bool = False) -> Tensor:
    """All parameters of a model as one vector w, [P]; with ``buffers`` also its floating-point buffers."""
    tensors = list(model.parameters())
    if buffers:
        tensors += [b for b in model.buffers() if b.is_floating_point()]
    return torch.cat([t.reshape(-1) for t in tensors])


def average(states: Sequence[State], weights: Sequence[float]) -> State:
    """Weighted mean of model states, entry by entry, BatchNorm buffers included; weights are divided by their sum."""
    total = float(sum(weights))
    shares = [float(w) / total for w in weights]
    mean: State = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            mean[name] = first * shares[0]
            for state, share in zip(states[1:], shares[1:], strict=True):
                mean[name].add_(state[name], alpha=share)
        else:  # counters such as BatchNorm's num_batches_tracked
            exact = sum(state[name].double() * share for state, share in zip(states, shares, strict=True))
            mean[name] = exact.round().to(first.dtype)
    return mean


@dataclass
class FedAvg:
    """Federated averaging (McMahan et al. 2017), and the default answers of every other method.

    A subclass is a dataclass whose fields are its hyperparameters; one that is annotated with a type such as
    `Positive`, or with a ``Literal``, is checked. `loss` and `predict` are pure functions of
    tensors, with no branch on data, so that they run eagerly, compiled, batched over clients, or in a CUDA graph.
    """

    # True if clients end with models of their own, which are then evaluated one by one
    personal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rules.check(self)

    def start(self, model: Net, num_clients: int) -> Server:
        """The server's first state."""
        return {"model": {n: v.detach().clone() for n, v in model.state_dict().items() if self.shared(n)}}

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

    def optimizer(self, client: Client, parameters: list[nn.Parameter], given: dict[str, Any]) -> torch.optim.Optimizer:
        """A new optimiser for each client, round and phase, as in the papers' code."""
        s = client.training
        return torch.optim.SGD(parameters, s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True)

    def loss(self, model: Net, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Named scalar terms on a batch x [B, C, H, W], y [B]; their sum is minimised, each is logged."""
        return {"cross_entropy": F.cross_entropy(model(x).logits, y)}

    def upload(self, client: Client, given: dict[str, Any]) -> Message:
        """What the client sends back after training. The only place that writes the client's memory."""
        state = client.state()
        kept = {n: v for n, v in state.items() if not self.shared(n)}
        if kept:
            client.memory["model"] = kept
        return {
            "model": {n: v for n, v in state.items() if self.shared(n)},
            "num_samples": torch.tensor(client.num_samples),
        }

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        """The server's next state. All of the server's random draws happen here, keyed by ``server["seed"]``.

        Each upload also holds the number of the client that it comes from, as ``"client"``.
        """
        weights = [int(u["num_samples"]) for u in uploads]
        return {**server, "model": average([u["model"] for u in uploads], weights)}

    def predict(self, model: Net, x: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Named read-outs, each [B, K]: the class with the largest value is the prediction. The first one is reported."""
        return {"classifier": model(x).logits}

    def round(self, federation: Federation, server: Server, clients: list[Client], t: int) -> Server:
        """One communication round."""
        return self.aggregate(server, federation.exchange(server, clients, t), t)


def message_size(message: Message) -> dict[str, tuple[int, int]]:
    """Numbers and bytes of each entry of a message."""

    def size(value: Any) -> tuple[int, int]:
        if isinstance(value, Tensor):
            return value.numel(), value.numel() * value.element_size()
        if isinstance(value, Mapping):
            return tuple(map(sum, zip((0, 0), *map(size, value.values()), strict=True)))  # type: ignore[return-value]
        raise TypeError(f"A message holds tensors and dicts of tensors, not {type(value).__name__}.")

    return {name: size(value) for name, value in message.items()}


def held_bytes(client: Client, given: Mapping[str, Any]) -> int:
    """Bytes of the tensors that a client must hold beside the network that it trains: its memory, and what it was given.

    A tensor that is in both counts once. What the memory has as ``model`` is the network itself between rounds.
    """
    found: dict[int, int] = {}

    def add(value: Any) -> None:
        if isinstance(value, Tensor):
            place = value.data_ptr()
            found[place] = max(found.get(place, 0), value.numel() * value.element_size())
        elif isinstance(value, Mapping | list | tuple):
            for one in value.values() if isinstance(value, Mapping) else value:
                add(one)

    add([{name: value for name, value in client.memory.items() if name != "model"}, given])
    return sum(found.values())
