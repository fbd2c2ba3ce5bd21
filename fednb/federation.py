"""The federation that runs a method: sampling, seeding, local SGD, evaluation, counting what is sent, checkpoints."""

import itertools
import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fednb import evaluation, seeds
from fednb.data import Dataset, augment
from fednb.hyperparameters import BelowOne, Count, Fraction, NonNegative, NonNegativeInt, Positive
from fednb.method import (
    Client,
    FedAvg,
    Message,
    Phase,
    Server,
    State,
    Training,
    average,
    flat,
    held_bytes,
    message_size,
)
from fednb.models import Net

KEPT = (
    "rounds_done",
    "server",
    "history",
    "traffic",
)  # in a checkpoint, beside the clients' memories
Work = Callable[[Client, Message, int], Message]
Train = Callable[["Federation", Sequence[Client], Sequence[Message], int], list[Message]]


@dataclass
class Federation:
    """A simulated federation: clients, data on a device, and the way across between client and server."""

    method: FedAvg  # what differs from FedAvg
    dataset: Dataset
    parts: Sequence[np.ndarray]  # the training images of each client
    build_model: Callable[..., Net]  # builds a network, with the same initial weights each time
    training: Training
    seed: int = 0  # the first of the four keys of every random draw
    participation: float = 1.0  # fraction of the clients that is sampled in each round
    test_parts: Sequence[np.ndarray] | None = (
        None  # test images of each client; None: all share the whole test set,
    )
    test_index: np.ndarray | None = None  # or these images of it
    held_out: Sequence[
        np.ndarray
    ] = ()  # training images kept back for ``validation``: one array for all, or one for each
    architectures: Sequence[Hashable] | None = (
        None  # where networks differ: each client's key, given to ``build_model``
    )
    evaluate_every: int = (
        1  # after so many rounds, and in any case from round ``training.num_rounds`` on
    )
    device: str = "cpu"  # or "cuda", or "cuda:1"
    workers: int | None = (
        None  # clients side by side, each on one thread of a CPU; None: one per core. Changes no result
    )
    train: Train | None = (
        None  # how clients get from broadcasts to uploads; None: step by step, one by one or side by side
    )

    def __post_init__(self) -> None:
        d, device = self.dataset, self.device
        self.images = augment.store(d.images, d.augmentation).to(device)
        self.test_images = d.test_images.permute(0, 2, 3, 1).contiguous().to(device)
        self.labels, self.test_labels = d.labels.to(device), d.test_labels.to(device)
        self.constants = augment.constants(d.mean, d.std, device)
        keys = self.architectures or [None] * len(self.parts)
        self.clients = []
        for part, key in zip(self.parts, keys, strict=True):
            own = torch.as_tensor(part, device=device)
            self.clients.append(
                Client(len(self.clients), own, self.labels[own], key, self.training, self)
            )
        self.workers = self.workers or os.cpu_count() or 1
        self._free = {
            key: [self.network(key)] for key in dict.fromkeys(keys)
        }  # networks that no client has in hand
        self.initial = {
            key: free[0].state() for key, free in self._free.items()
        }  # weights common to all clients
        shapes = [
            {(n, v.shape) for n, v in w.items() if self.method.shared(n)}
            for w in self.initial.values()
        ]
        if different := set.union(*shapes) - set.intersection(*shapes):
            told = f"{type(self.method).__name__} averages {min(different)[0]}, which has not the same shape in all networks"
            raise ValueError(
                f"{told}: give all clients equal ones, or take a method that shares no weights."
            )
        with self.lend_model(self.clients[0]):
            self.server = self.method.start(self.clients[0].model, len(self.clients)) | {
                "seed": self.seed
            }
        self.rounds_done = 0
        self.history: list[dict[str, Any]] = []
        # what crossed in the last round, "down" and "up": numbers and bytes of each entry of the messages
        self.traffic: dict[str, dict[str, tuple[int, int]]] = {}

    def network(self, architecture: Hashable = None) -> Net:
        """A new network of an architecture, on the device."""
        model = self.build_model() if architecture is None else self.build_model(architecture)
        return model.to(self.device, memory_format=torch.channels_last)

    @contextmanager
    def lend_model(self, client: Client) -> Iterator[None]:
        """Lend a network to a client for the length of a block; there are as many as were ever in use at once."""
        free = self._free[client.architecture]
        try:
            client.model = free.pop()
        except IndexError:
            client.model = self.network(client.architecture)
        try:
            yield
        finally:
            free.append(client.model)
            client.model = None

    def exchange(
        self, server: Server, clients: Sequence[Client], t: int, work: Work | None = None
    ) -> list[Message]:
        """Send each client its broadcast, let it work, and return the uploads in the order of the clients' numbers.

        This is the only way across, and everything that crosses is counted in ``traffic``.
        """

        def in_hand(client: Client, message: Message) -> Message:
            with self.lend_model(client):
                return (work or self.local_update)(client, message, t)

        order = sorted(
            clients, key=lambda c: (-c.num_samples, c.id)
        )  # so that no worker is left alone with a late giant
        received = [self.method.broadcast(server, client.id) for client in order]
        uploads = (
            self.train(self, order, received, t)
            if self.train and not work
            else self.map(in_hand, order, received)
        )
        for direction, messages in (("down", received), ("up", uploads)):
            sums = self.traffic.setdefault(direction, {})
            for name, (numbers, nbytes) in itertools.chain(
                *(message_size(message).items() for message in messages)
            ):
                before = sums.get(name, (0, 0))
                sums[name] = before[0] + numbers, before[1] + nbytes
        # whom the server hears it knows without being told
        told = [up | {"client": client.id} for client, up in zip(order, uploads, strict=True)]
        return sorted(told, key=lambda upload: upload["client"])

    def begin(self, client: Client, received: Message, t: int) -> tuple[dict[str, Any], Generator]:
        """Load what a client received, and reset what a round counts: what it is given, and what its batches draw from."""
        client.load(received)
        given = self.method.prepare(client, received, t)
        client.held, client.steps, client.losses = held_bytes(client, given), 0, {}
        client.seed_masks(int(seeds.generator(self.seed, "dropout", t, client.id).integers(2**63)))
        return given, seeds.generator(self.seed, "batches", t, client.id)

    def local_update(self, client: Client, received: Message, t: int) -> Message:
        """What a client does by default: load, prepare, train phase by phase, upload."""
        given, rng = self.begin(client, received, t)
        for phase in self.method.plan(client, t):
            self.freeze(client.model, phase)
            take_steps(self, client, phase, given, rng)
        return self.method.upload(client, given)

    @staticmethod
    def freeze(model: Net, phase: Phase) -> None:
        """Put the model in train mode, but for what the phase does not train."""
        model.train()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(phase.trains(name))
        for module in model.modules():  # a frozen layer must not move its BatchNorm buffers either
            own = list(module.parameters(recurse=False))
            if own and not any(p.requires_grad for p in own):
                module.eval()

    def map(self, function: Callable, *items: Sequence) -> list:
        """As Python's ``map``; on a CPU ``workers`` calls at a time, on one intra-op thread each."""
        threads = torch.get_num_threads()
        if self.device == "cpu":
            torch.set_num_threads(1)
        try:
            if self.workers == 1 or len(items[0]) == 1 or self.device != "cpu":
                return list(map(function, *items))
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(function, *items))
        finally:
            torch.set_num_threads(threads)

    def inputs(self, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """Training images [B] as a network sees them, [B, C, H, W]: augmented as drawn, or as they are; normalised."""
        return augment.normalise(
            augment.gather(self.images, index, draws, self.dataset.augmentation), *self.constants
        )

    def plain_batches(self, indices: Tensor) -> Iterator[Tensor]:
        """Training images as they are, normalised, in order."""
        return map(self.inputs, indices.split(500))

    def batches(self, indices: Tensor, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch over a client's images, x [B, C, H, W] and y [B]: shuffled, augmented, normalised."""
        return (
            (self.inputs(index, draws), self.labels[index])
            for index, draws in self.epoch(indices, rng)
        )

    def epoch(self, indices: Tensor, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The images of each batch of an epoch, [B], and the draws for their augmentation, [B, 4].

        Without the training's ``keep_last`` the last incomplete batch is dropped, unless it is the client's only one.
        """
        n, size = len(indices), self.training.batch_size
        kept = n if self.training.keep_last else max(n - n % size, min(n, size))
        order = torch.from_numpy(rng.permutation(n)[:kept])
        draws = augment.draw(kept, self.dataset.augmentation, rng)
        return zip(
            indices[order.to(self.device)].split(size),
            draws.to(self.device).split(size),
            strict=True,
        )

    def steps(
        self, client: Client, phase: Phase, rng: Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of a phase, one for each SGD step, as `epoch` has them."""
        epochs = (self.epoch(client.indices, rng) for _ in range(phase.epochs))
        return itertools.islice(itertools.chain.from_iterable(epochs), self.training.local_steps)

    def sample(self, t: int) -> list[Client]:
        """The clients of round ``t``, by their numbers."""
        n = len(self.clients)
        k = max(1, round(self.participation * n))
        chosen = (
            range(n)
            if k == n
            else seeds.generator(self.seed, "sampling", t).choice(n, k, replace=False)
        )
        return [self.clients[i] for i in sorted(chosen)]

    def run_round(self) -> dict[str, Any]:
        """Run one round, evaluate if it is due, and return (and append to ``history``) its entry.

        It holds ``round`` (from 1), ``finite`` (no loss and nothing of the server is NaN or Inf), what `evaluation.evaluate`
        says, mean loss terms, what crossed, what a client held at most, and seconds.
        """
        t, begin = self.rounds_done, time.perf_counter()
        clients, self.traffic = self.sample(t), {}
        self.server = self.method.round(self, self.server, clients, t)
        steps, terms = (
            sum(client.steps for client in clients),
            dict.fromkeys(n for client in clients for n in client.losses),
        )
        losses = {
            n: float(sum(c.losses[n] for c in clients if n in c.losses)) / max(steps, 1)
            for n in terms
        }
        tensors = [value for value in tree_leaves(self.server) if isinstance(value, Tensor)]
        finite = all(map(math.isfinite, losses.values())) and all(
            bool(value.isfinite().all()) for value in tensors
        )
        trained = time.perf_counter()
        self.rounds_done = (
            t + 1
        )  # before the evaluation, which is in the round of the next broadcast
        entry: dict[str, Any] = {"round": t + 1, "finite": finite}
        if finite and (
            self.rounds_done % self.evaluate_every == 0
            or self.rounds_done >= self.training.num_rounds
        ):
            entry |= evaluation.evaluate(self)
        entry |= {f"loss/{name}": value for name, value in losses.items()}
        for direction, sizes in self.traffic.items():
            entry[f"{direction}_numbers"] = sum(numbers for numbers, _ in sizes.values())
            entry[f"{direction}_bytes"] = sum(nbytes for _, nbytes in sizes.values())
        entry |= {"held_bytes": max(client.held for client in clients), "seconds": trained - begin}
        entry["evaluation_seconds"] = time.perf_counter() - trained
        self.history.append(entry)
        return entry

    def checkpoint(self) -> dict[str, Any]:
        """Everything that the rounds to come depend on; as every draw is keyed, no generator state is in it."""
        return {name: getattr(self, name) for name in KEPT} | {
            "memories": [client.memory for client in self.clients]
        }

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to where `checkpoint` was taken; a checkpoint that lacks something changes nothing and raises."""
        kept = {name: checkpoint[name] for name in KEPT}
        if missing := self.server.keys() - kept["server"].keys():
            raise ValueError(f"its server has no {', '.join(missing)}")
        memories = list(zip(self.clients, checkpoint["memories"], strict=True))
        vars(self).update(kept)
        for client, memory in memories:
            client.memory = memory


def take_steps(
    federation: Federation, client: Client, phase: Phase, given: dict[str, Any], rng: Generator
) -> None:
    """The SGD steps of a phase; the model holds the result."""
    model, method, losses = client.model, federation.method, client.losses
    optimizer = method.optimizer(client, [p for p in model.parameters() if p.requires_grad], given)
    for index, draws in federation.steps(client, phase, rng):
        terms = method.loss(model, federation.inputs(index, draws), federation.labels[index], given)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
        client.steps += 1
        for name, value in terms.items():  # sums stay on the device until the round ends
            losses[name] = losses[name] + value.detach() if name in losses else value.detach()
