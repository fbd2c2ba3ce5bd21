"""The federation: who takes part in a round, what crosses, and what a round's entry says."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fednb import evaluation, seeds
from fednb.client import Client, Phase, held_bytes
from fednb.data import Dataset
from fednb.hyperparameters import BelowOne, Count, Fraction, NonNegative, NonNegativeInt, Positive
from fednb.messages import Message, Server, State, average, flat, message_size
from fednb.method import FedAvg
from fednb.models import Net
from fednb.training.loop import sgd_steps
from fednb.workspace import Training, Workspace

# what a notebook needs of a method, it imports from here
__all__ = [
    "BelowOne",
    "Client",
    "Count",
    "FedAvg",
    "Federation",
    "Fraction",
    "Message",
    "NonNegative",
    "NonNegativeInt",
    "Phase",
    "Positive",
    "Server",
    "State",
    "Training",
    "average",
    "flat",
]

CHECKPOINT_FIELDS = ("rounds_done", "server", "history", "traffic")  # beside the clients' memories
LocalUpdate = Callable[[Client, Message, int], Message]  # from what a client received to its upload
Trainer = Callable[["Federation", Sequence[Client], Sequence[Message], int], list[Message]]


@dataclass
class Federation(Workspace):
    """A simulated federation. A round, as `run_round` makes it, is

        clients   = sample(t)                                 who takes part
        received  = method.broadcast(server, client.id)       one message for each
        given     = method.prepare(client, received, t)       on each client: weights loaded, what the loss may read
        steps of SGD on method.loss(model, x, y, given)
        upload    = method.upload(client, given)              one message from each
        server    = method.aggregate(server, uploads, t)
        evaluate                                              each client as if it had the next broadcast

    and what crosses is counted, both ways, in `exchange`. `carry` and `hits` are where a simulation
    differs from a network: a subclass may put messages in the place of their function calls.
    """

    method: FedAvg  # what differs from FedAvg
    dataset: Dataset
    parts: Sequence[np.ndarray]  # the training images of each client
    build_model: Callable[..., Net]  # builds a network, with the same initial weights each time
    training: Training
    seed: int = 0  # the first of the four keys of every random draw
    participation: float = 1.0  # fraction of the clients that is sampled in each round
    # test images of each client; None: all share the whole test set
    test_parts: Sequence[np.ndarray] | None = None
    test_index: np.ndarray | None = None  # or these images of it
    # training images kept back for ``validation``: one array for all, or one for each
    held_out: Sequence[np.ndarray] = ()
    # where networks differ: each client's key, given to ``build_model``
    architectures: Sequence[Hashable] | None = None
    # after so many rounds, and in any case from round ``training.num_rounds`` on
    evaluate_every: int = 1
    device: str = "cpu"  # or "cuda", or "cuda:1"
    # clients side by side, each on one thread of a CPU; None: one per core. Changes no result
    workers: int | None = None
    train: Trainer | None = None  # how clients get from broadcasts to uploads; None: the plain loop

    def __post_init__(self) -> None:
        self.set_up()
        check_shared_shapes(self.method, self.initial)
        self.clients: list[Client] = []
        architectures = self.architectures or [None] * len(self.parts)
        for part, architecture in zip(self.parts, architectures, strict=True):
            indices = torch.as_tensor(part, device=self.device)
            labels = self.labels[indices]
            client = Client(len(self.clients), indices, labels, architecture, self.training, self)
            self.clients.append(client)
        first = self.clients[0]
        with self.lend_model(first):
            start = self.method.start(first.model, len(self.clients))
        self.server: Server = start | {"seed": self.seed}
        self.rounds_done = 0
        self.history: list[dict[str, Any]] = []
        # of the last round, "down" and "up": numbers and bytes of each entry of the messages
        self.traffic: dict[str, dict[str, tuple[int, int]]] = {}

    def exchange(
        self, server: Server, clients: Sequence[Client], t: int, work: LocalUpdate | None = None
    ) -> list[Message]:
        """Send each client its broadcast, let it work, and return the uploads, by clients' numbers.

        This is the only way across, and everything that crosses is counted in ``traffic``. ``work``
        is what a client does with what it received; None: it trains, by ``train`` or
        `local_update`.
        """
        # the largest first, so that no worker is left alone with a late giant
        clients = sorted(clients, key=lambda client: (-client.num_samples, client.id))
        received = [self.method.broadcast(server, client.id) for client in clients]
        self._count("down", received)
        uploads = self.carry(clients, received, t, work)
        self._count("up", uploads)
        # whom the server hears it knows without being told
        pairs = zip(clients, uploads, strict=True)
        signed = [upload | {"client": client.id} for client, upload in pairs]
        return sorted(signed, key=lambda upload: upload["client"])

    def carry(
        self,
        clients: Sequence[Client],
        received: Sequence[Message],
        t: int,
        work: LocalUpdate | None,
    ) -> list[Message]:
        """Carry each client its message, let it work, and carry its upload back."""

        def lent(client: Client, message: Message) -> Message:
            with self.lend_model(client):
                return (work or self.local_update)(client, message, t)

        if work is None and self.train is not None:
            return self.train(self, clients, received, t)
        return self.map(lent, clients, received)

    def hits(
        self, clients: Sequence[Client], parts: Sequence[Tensor], training: bool = False
    ) -> list[evaluation.Hits]:
        """Which images of its part each client classifies right: `evaluation.correct`."""
        return self.map(partial(evaluation.correct, self, training=training), clients, parts)

    def _count(self, direction: str, messages: Sequence[Message]) -> None:
        sums = self.traffic.setdefault(direction, {})
        for message in messages:
            for name, (numbers, nbytes) in message_size(message).items():
                before = sums.get(name, (0, 0))
                sums[name] = before[0] + numbers, before[1] + nbytes

    def start_round(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """Load what a client received, reset its counts of a round; what its loss may read."""
        client.training = self.training.in_round(t)
        client.load(received)
        given = self.method.prepare(client, received, t)
        client.held = held_bytes(client, given)
        client.steps = 0
        client.losses = {}
        client.seed_masks(int(seeds.generator(self.seed, "dropout", t, client.id).integers(2**63)))
        return given

    def batch_generator(self, client: Client, t: int) -> np.random.Generator:
        """What a client's batches and augmentation draw from in round ``t``."""
        return seeds.generator(self.seed, "batches", t, client.id)

    def local_update(self, client: Client, received: Message, t: int) -> Message:
        """What a client does by default: load, prepare, train phase by phase, upload."""
        given = self.start_round(client, received, t)
        rng = self.batch_generator(client, t)
        for phase in self.method.plan(client, t):
            client.set_trainable(phase)
            batches = self.steps(client.indices, phase.epochs, rng)
            sgd_steps(self.method, client, given, batches)
        return self.method.upload(client, given)

    def sample(self, t: int) -> list[Client]:
        """The clients of round ``t``, by their numbers."""
        n = len(self.clients)
        k = max(1, round(self.participation * n))
        if k == n:
            return list(self.clients)
        chosen = seeds.generator(self.seed, "sampling", t).choice(n, k, replace=False)
        return [self.clients[i] for i in sorted(chosen)]

    def run_round(self) -> dict[str, Any]:
        """Run one round, evaluate if it is due, and return (and append to ``history``) its entry.

        It holds ``round`` (from 1), ``finite`` (no loss and nothing of the server is NaN or Inf),
        what `evaluation.evaluate` says, mean loss terms, what crossed, what a client held at most,
        and seconds.
        """
        t = self.rounds_done
        begin = perf_counter()
        clients = self.sample(t)
        self.traffic = {}
        self.server = self.method.round(self, self.server, clients, t)
        losses = mean_losses(clients)
        finite = is_finite(losses, self.server)
        trained = perf_counter()
        # before the evaluation, which is in the round of the next broadcast
        self.rounds_done = t + 1
        entry: dict[str, Any] = {"round": t + 1, "finite": finite}
        is_last = self.rounds_done >= self.training.num_rounds
        if finite and (self.rounds_done % self.evaluate_every == 0 or is_last):
            entry |= evaluation.evaluate(self)
        entry |= {f"loss/{name}": value for name, value in losses.items()}
        for direction, sizes in self.traffic.items():
            entry[f"{direction}_numbers"] = sum(numbers for numbers, _ in sizes.values())
            entry[f"{direction}_bytes"] = sum(nbytes for _, nbytes in sizes.values())
        entry["held_bytes"] = max(client.held for client in clients)
        entry["seconds"] = trained - begin
        entry["evaluation_seconds"] = perf_counter() - trained
        self.history.append(entry)
        return entry

    def checkpoint(self) -> dict[str, Any]:
        """All that later rounds depend on: as every draw is keyed, no generator's state."""
        fields = {name: getattr(self, name) for name in CHECKPOINT_FIELDS}
        return fields | {"memories": [client.memory for client in self.clients]}

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to a `checkpoint`; if it lacks something, a ``ValueError`` that changes nothing."""
        fields = {name: checkpoint[name] for name in CHECKPOINT_FIELDS}
        missing = self.server.keys() - fields["server"].keys()
        if missing:
            raise ValueError(f"its server has no {', '.join(missing)}")
        memories = list(zip(self.clients, checkpoint["memories"], strict=True))
        vars(self).update(fields)
        for client, memory in memories:
            client.memory = memory


def check_shared_shapes(method: FedAvg, initial: dict[Hashable, State]) -> None:
    """All networks must agree in the shapes of what the method averages; else a `ValueError`."""
    first, *others = (
        {name: value.shape for name, value in state.items() if method.shared(name)}
        for state in initial.values()
    )
    for other in others:
        if first != other:
            name, _ = min(first.items() ^ other.items())
            raise ValueError(
                f"{type(method).__name__} averages {name}, which has not the same shape in all "
                "networks: give all clients equal ones, or take a method that shares no weights."
            )


def mean_losses(clients: Sequence[Client]) -> dict[str, float]:
    """Each loss term, the mean over all SGD steps that the clients took in the round."""
    num_steps = max(1, sum(client.steps for client in clients))
    sums: dict[str, Any] = {}
    for client in clients:
        for name, value in client.losses.items():
            sums[name] = sums.get(name, 0) + value
    return {name: float(value) / num_steps for name, value in sums.items()}


def is_finite(losses: dict[str, float], server: Server) -> bool:
    """Is no loss, and nothing that the server holds, NaN or Inf?"""
    tensors = [value for value in tree_leaves(server) if isinstance(value, Tensor)]
    finite = [math.isfinite(loss) for loss in losses.values()]
    return all(finite) and all(tensor.isfinite().all() for tensor in tensors)
