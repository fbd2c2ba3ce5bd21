"""The federation: who takes part in a round, what crosses, and how a client trains."""

import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fednb import seeds
from fednb.batches import Batch, Images, Training
from fednb.client import Client, Phase
from fednb.data import Dataset
from fednb.evaluation import evaluate
from fednb.messages import Message, Server, State, average, flat, message_size
from fednb.method import BelowOne, FedAvg, Fraction
from fednb.models import Net

# what a notebook needs of a method, it imports from here
__all__ = [
    "BelowOne",
    "Client",
    "FedAvg",
    "Federation",
    "Fraction",
    "Message",
    "NonNegativeFloat",
    "NonNegativeInt",
    "Phase",
    "PositiveFloat",
    "PositiveInt",
    "Server",
    "State",
    "Training",
    "average",
    "flat",
]

CHECKPOINT_FIELDS = ("rounds_done", "server", "history", "traffic")  # beside the clients' memories
Work = Callable[[Client, Message, int], Message]  # from what a client received to its upload
Trainer = Callable[["Federation", Sequence[Client], Sequence[Message], int], list[Message]]


@dataclass
class Federation:
    """A simulated federation. A round, as `run_round` makes it, is

        clients   = sample(t)                                 who takes part
        received  = method.broadcast(server, client.id)       one message for each
        context   = method.prepare(client, received, t)       on each client: weights loaded, what the loss may read
        steps of SGD on method.loss(model, x, y, context)
        upload    = method.upload(client, context)            one message from each
        server    = method.aggregate(server, uploads, t)
        evaluate                                              each client as if it had the next broadcast

    and what crosses is counted, both ways, in `exchange`. Clients of networks whose shared weights
    differ in shape are a ``ValueError``.
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
    train: Trainer | None = None  # trains all clients of a round; None: each by `local_update`

    def __post_init__(self) -> None:
        self.workers = self.workers or os.cpu_count() or 1
        self.images = Images(self.dataset, self.device)
        architectures = self.architectures or [None] * len(self.parts)
        networks = {key: self.new_network(key) for key in dict.fromkeys(architectures)}
        self._idle = {key: [network] for key, network in networks.items()}
        # the weights that clients of an architecture have in common before the first round
        self.initial: dict[Hashable, State] = {key: net.state() for key, net in networks.items()}
        check_shared_shapes(self.method, self.initial)
        self.clients: list[Client] = []
        for part, architecture in zip(self.parts, architectures, strict=True):
            indices = torch.as_tensor(part, device=self.device)
            client = Client(
                id=len(self.clients),
                indices=indices,
                labels=self.images.labels[indices],
                architecture=architecture,
                images=self.images,
                training=self.training,
                initial=self.initial[architecture],
                seed=self.seed,
            )
            self.clients.append(client)
        first = self.clients[0]
        with self.at_work(first):
            start = self.method.start(first.model, len(self.clients))
        self.server: Server = start | {"seed": self.seed}
        self.rounds_done = 0
        self.history: list[dict[str, Any]] = []
        # of the last round, "down" and "up": numbers and bytes of each entry of the messages
        self.traffic: dict[str, dict[str, tuple[int, int]]] = {}

    # --- a round

    def run_round(self) -> dict[str, Any]:
        """Run one round, evaluate if it is due, and return (and append to ``history``) its entry.

        It holds ``round`` (from 1), ``finite`` (no loss and nothing of the server is NaN or Inf),
        what `evaluate` says, mean loss terms, what crossed, and seconds.
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
            entry |= evaluate(self)
        entry |= {f"loss/{name}": value for name, value in losses.items()}
        for direction, sizes in self.traffic.items():
            entry[f"{direction}_numbers"] = sum(numbers for numbers, _ in sizes.values())
            entry[f"{direction}_bytes"] = sum(nbytes for _, nbytes in sizes.values())
        entry["seconds"] = trained - begin
        entry["evaluation_seconds"] = perf_counter() - trained
        self.history.append(entry)
        return entry

    def sample(self, t: int) -> list[Client]:
        """Return the clients of round ``t``, by their numbers."""
        n = len(self.clients)
        k = max(1, round(self.participation * n))
        if k == n:
            return list(self.clients)
        chosen = seeds.generator(self.seed, "sampling", t).choice(n, k, replace=False)
        return [self.clients[i] for i in sorted(chosen)]

    def exchange(
        self, server: Server, clients: Sequence[Client], t: int, work: Work | None = None
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
        if work is None and self.train is not None:
            uploads = self.train(self, clients, received, t)
        else:
            chosen = work or self.local_update

            def let_work(client: Client, message: Message) -> Message:
                with self.at_work(client):
                    return chosen(client, message, t)

            uploads = self.map(let_work, clients, received)
        self._count("up", uploads)
        # whom the server hears it knows without being told
        pairs = zip(clients, uploads, strict=True)
        signed = [upload | {"client": client.id} for client, upload in pairs]
        return sorted(signed, key=lambda upload: upload["client"])

    def _count(self, direction: str, messages: Sequence[Message]) -> None:
        sums = self.traffic.setdefault(direction, {})
        for message in messages:
            for name, (numbers, nbytes) in message_size(message).items():
                before = sums.get(name, (0, 0))
                sums[name] = before[0] + numbers, before[1] + nbytes

    # --- a client's part of it

    def local_update(self, client: Client, received: Message, t: int) -> Message:
        """Do what a client does by default: load, prepare, train phase by phase, upload."""
        context = self.start_round(client, received, t)
        rng = self.batch_generator(client, t)
        for phase in self.method.plan(client, t):
            client.set_trainable(phase)
            batches = self.images.steps(client.indices, client.training, phase.epochs, rng)
            sgd_steps(self.method, client, context, batches)
        return self.method.upload(client, context)

    def start_round(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """Load what a client received and reset its counts of a round; return what its loss may read."""
        client.load(received)
        context = self.method.prepare(client, received, t)
        client.steps = 0
        client.losses = {}
        seed = int(seeds.generator(self.seed, "dropout", t, client.id).integers(2**63))
        client.seed_dropout(seed)
        return context

    def batch_generator(self, client: Client, t: int) -> np.random.Generator:
        """Return what a client's batches and augmentation draw from in round ``t``."""
        return seeds.generator(self.seed, "batches", t, client.id)

    # --- the machine

    def new_network(self, architecture: Hashable = None) -> Net:
        """Return a new network of an architecture, on the device."""
        model = self.build_model() if architecture is None else self.build_model(architecture)
        return model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @contextmanager
    def at_work(self, client: Client) -> Iterator[Client]:
        """Give a client a network for a block; there are as many as were ever in use at once."""
        idle = self._idle[client.architecture]
        try:
            network = idle.pop()
        except IndexError:
            network = self.new_network(client.architecture)
        client.network = network
        try:
            yield client
        finally:
            client.network = None
            idle.append(network)

    def map(self, function: Callable, *items: Sequence) -> list:
        """Do as Python's ``map``; on a CPU ``workers`` calls at once, each on one intra-op thread."""
        if self.device != "cpu":
            return list(map(function, *items))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if self.workers == 1 or len(items[0]) == 1:
                return list(map(function, *items))
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(function, *items))
        finally:
            torch.set_num_threads(threads)

    # --- checkpoints

    def checkpoint(self) -> dict[str, Any]:
        """Return all that later rounds depend on: as every draw is keyed, no generator's state."""
        fields = {name: getattr(self, name) for name in CHECKPOINT_FIELDS}
        return fields | {"memories": [client.memory for client in self.clients]}

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to a `checkpoint`; if it does not fit, a ``ValueError`` that changes nothing."""
        fields = {name: checkpoint[name] for name in CHECKPOINT_FIELDS}
        memories = list(zip(self.clients, checkpoint["memories"], strict=True))
        for client, memory in memories:
            weights = fields["server"].get("model", {}) | memory.get("model", {})
            if not are_weights_of(weights, self.initial[client.architecture]):
                raise ValueError("its network is another one")
        vars(self).update(fields)
        for client, memory in memories:
            client.memory = memory


def sgd_steps(
    method: FedAvg, client: Client, context: dict[str, Any], batches: Iterable[Batch]
) -> None:
    """Train the client's model: one SGD step for each batch, by a new optimiser.

    The client counts the steps, and sums each loss term over them.
    """
    model, images = client.model, client.images
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = method.optimizer(client, trained, context)
    for index, draws in batches:
        terms = method.loss(model, images.inputs(index, draws), images.labels[index], context)
        optimizer.zero_grad()
        total_loss(terms).backward()
        optimizer.step()
        client.steps += 1
        add_losses(client, terms)


def total_loss(terms: dict[str, Tensor]) -> Tensor:
    """Return the sum of a loss's terms, which is what a step minimises."""
    # of no terms it would be 0, but a loss has some
    return sum(terms.values())  # type: ignore[return-value]


def add_losses(client: Client, terms: dict[str, Tensor]) -> None:
    """Add the terms of steps to the client's sums, which stay on the device."""
    for name, value in terms.items():
        client.losses[name] = client.losses.get(name, 0) + value.detach()


def are_weights_of(weights: State, initial: State) -> bool:
    """Tell whether a network with the initial weights has all the others, in their shapes."""
    names = initial.keys() & weights.keys()
    return len(names) == len(weights) and all(
        initial[name].shape == weights[name].shape for name in names
    )


def check_shared_shapes(method: FedAvg, initial: dict[Hashable, State]) -> None:
    """Raise a `ValueError` unless all networks agree in the shapes of what the method averages."""
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
    """Return each loss term, the mean over all SGD steps that the clients took in the round."""
    num_steps = max(1, sum(client.steps for client in clients))
    sums: dict[str, Any] = {}
    for client in clients:
        for name, value in client.losses.items():
            sums[name] = sums.get(name, 0) + value
    return {name: float(value) / num_steps for name, value in sums.items()}


def is_finite(losses: dict[str, float], server: Server) -> bool:
    """Tell whether no loss, and nothing that the server holds, is NaN or Inf."""
    tensors = [value for value in tree_leaves(server) if isinstance(value, Tensor)]
    finite = [math.isfinite(loss) for loss in losses.values()]
    return all(finite) and all(tensor.isfinite().all() for tensor in tensors)
