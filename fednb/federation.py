"""The federation that runs a method: sampling, seeding, local SGD, evaluation, counting what is sent, checkpoints."""

from __future__ import annotations

import itertools
import math
import os
import queue
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednb import evaluation, seeds
from fednb.data import Dataset, augment
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
from fednb.models import Net, seed_dropout
from fednb.rules import BelowOne, Count, Fraction, NonNegative, NonNegativeInt, Positive

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
    "message_size",
    "take_steps",
    "train_eagerly",
]

Steps = Callable[["Federation", Client, Phase, dict[str, Any], np.random.Generator], None]
Train = Callable[["Federation", Sequence[Client], Sequence[Message], int], list[Message]]


@dataclass
class Federation:
    """A simulated federation: clients, data on a device, and the way across between client and server.

    Parameters
    ----------
    method
        What differs from FedAvg.
    dataset, parts
        The images, and the training images of each client.
    build_model
        Builds a network, with the same initial weights each time.
    training
        Rounds, epochs and SGD settings.
    seed
        First of the four keys of every random draw.
    participation
        Fraction of the clients that is sampled in each round.
    test_parts
        Test images of each client; None: all clients share the whole test set.
    test_index
        The test images that are evaluated where all clients share the test set; None: all of them.
    held_out
        Training images that nobody trains on; the accuracy on them is ``validation``. One array for all clients, or
        one for each; empty: there are none.
    architectures
        For networks that differ between clients: one key per client; ``build_model`` is then called with the key.
        What a method shares must have the same shape in all of them.
    evaluate_every
        Evaluate after every so many rounds, and in any case from round ``training.num_rounds`` on.
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    workers
        How many clients work side by side, each on one intra-op thread of a CPU; None: one per core. Results do not depend
        on it.
    train
        How the clients of a round train: from the federation, the clients, what each of them received, and the round, the
        upload of each. `train_eagerly`, unless there is a faster way (`fednb.experiments.cuda_graphs`).
    """

    method: FedAvg
    dataset: Dataset
    parts: Sequence[np.ndarray]
    build_model: Callable[..., Net]
    training: Training
    seed: int = 0
    participation: float = 1.0
    test_parts: Sequence[np.ndarray] | None = None
    test_index: np.ndarray | None = None
    held_out: Sequence[np.ndarray] = ()
    architectures: Sequence[Hashable] | None = None
    evaluate_every: int = 1
    device: str = "cpu"
    workers: int | None = None
    train: Train = field(default_factory=lambda: train_eagerly)
    traffic: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.test_parts is not None and self.test_index is not None:
            raise ValueError("test_index belongs to a test set that all clients share; with test_parts leave it at None.")
        d, dev = self.dataset, self.device
        self.images = augment.store(d.images, d.augmentation).to(dev)
        self.labels = d.labels.to(dev)
        self.test_images = d.test_images.permute(0, 2, 3, 1).contiguous().to(dev)
        self.test_labels = d.test_labels.to(dev)
        self.constants = augment.constants(d.mean, d.std, dev)
        keys = self.architectures or [None] * len(self.parts)
        self.clients = [
            Client(i, torch.from_numpy(np.asarray(part)).to(dev), key, self)
            for i, (part, key) in enumerate(zip(self.parts, keys, strict=True))
        ]
        self.workers = self.workers or os.cpu_count() or 1
        self.masks: dict[int, torch.Generator] = {}  # of the dropout of each network, by its id
        # clients take turns to use a few networks, so that memory does not grow with their number
        self._free: dict[Hashable, queue.LifoQueue[Net]] = {}
        self._initial: dict[Hashable, State] = {}
        for key in dict.fromkeys(keys):
            self._free[key] = queue.LifoQueue()
            for _ in range(self.workers):
                model = self.build_model() if key is None else self.build_model(key)
                self._free[key].put(model.to(dev, memory_format=torch.channels_last))
                self.masks[id(model)] = torch.Generator(dev)
                seed_dropout(model, self.masks[id(model)])
            self._initial[key] = {n: v.detach().clone() for n, v in model.state_dict().items()}
        self._check_shared()
        with self.lend_model(self.clients[0]):
            self.server = self.method.start(self.clients[0].model, len(self.clients)) | {"seed": self.seed}
        self.rounds_done = 0
        self.history: list[dict[str, Any]] = []

    def _check_shared(self) -> None:
        """Refuse to average weights of different shapes."""
        first, *others = ({n: v.shape for n, v in w.items() if self.method.shared(n)} for w in self._initial.values())
        for name in sorted({n for shapes in others for n in first.keys() | shapes.keys() if first.get(n) != shapes.get(n)}):
            raise ValueError(
                f"{type(self.method).__name__} averages {name}, which has not the same shape in all clients' networks: give "
                "them equal networks, or take a method that shares no weights."
            )

    def initial(self, architecture: Hashable = None) -> State:
        """The common initial weights of all networks of one architecture."""
        return self._initial[architecture]

    @contextmanager
    def lend_model(self, client: Client) -> Iterator[None]:
        """Lend one of the networks to a client for the length of a block."""
        try:
            client.model = self._free[client.architecture].get_nowait()
        except queue.Empty:
            raise RuntimeError("All networks are in use: a client works inside another client's work.") from None
        try:
            yield
        finally:
            self._free[client.architecture].put(client.model)
            client.model = None

    # --- the way across -------------------------------------------------------------------------------------------

    def exchange(
        self,
        server: Server,
        clients: Sequence[Client],
        t: int,
        work: Callable[[Client, Message, int], Message] | None = None,
    ) -> list[Message]:
        """Send each client its broadcast, let it work, and return the uploads in the order of the clients' numbers.

        This is the only way across, and everything that crosses is counted in ``traffic``.
        """
        # the largest first, so that no worker is left alone with a late giant
        order = sorted(clients, key=lambda c: (-c.num_samples, c.id))
        received = [self.method.broadcast(server, client.id) for client in order]
        uploads = self.train(self, order, received, t) if work is None else self.each(order, received, t, work)
        for down, up in zip(received, uploads, strict=True):
            self._count("down", down)
            self._count("up", up)
        # whom the server hears it knows without being told
        told = [up | {"client": client.id} for client, up in zip(order, uploads, strict=True)]
        return sorted(told, key=lambda upload: upload["client"])

    def each(
        self, clients: Sequence[Client], received: Sequence[Message], t: int, work: Callable[[Client, Message, int], Message]
    ) -> list[Message]:
        """Let each client do its work with a network in hand; returns what they send back."""

        def one(pair: tuple[Client, Message]) -> Message:
            with self.lend_model(pair[0]):
                return work(*pair, t)

        return self.map(one, list(zip(clients, received, strict=True)))

    def local_update(self, client: Client, received: Message, t: int, steps: Steps | None = None) -> Message:
        """What a client does by default: load, prepare, train phase by phase (by `take_steps`), upload."""
        client.load(received)
        given = self.method.prepare(client, received, t)
        client.held = held_bytes(client, given)
        client.steps, client.losses = 0, {}
        rng = seeds.generator(self.seed, "batches", t, client.id)
        client.seed_masks(int(seeds.generator(self.seed, "dropout", t, client.id).integers(2**63)))
        for phase in self.method.plan(client, t):
            self._freeze(client.model, phase)
            (steps or take_steps)(self, client, phase, given, rng)
        return self.method.upload(client, given)

    def map(self, function: Callable, items: Sequence) -> list:
        """Apply a function to each item; on a CPU ``workers`` at a time, on one intra-op thread each."""
        threads = torch.get_num_threads()
        if self.device == "cpu":
            torch.set_num_threads(1)
        try:
            if self.workers == 1 or len(items) == 1 or self.device != "cpu":
                return [function(item) for item in items]
            with ThreadPoolExecutor(self.workers) as pool:
                return list(pool.map(function, items))
        finally:
            torch.set_num_threads(threads)

    def _count(self, direction: str, message: Message) -> None:
        sums = self.traffic.setdefault(direction, {})
        for name, (numbers, bytes_) in message_size(message).items():
            old = sums.get(name, (0, 0))
            sums[name] = (old[0] + numbers, old[1] + bytes_)

    # --- local training -------------------------------------------------------------------------------------------

    def batches(self, indices: Tensor, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch over a client's images: shuffled, augmented, normalised.

        The last incomplete batch is dropped unless the training's ``keep_last`` says otherwise. A client with less than
        one batch keeps the one it has in any case: it would otherwise never train.
        """
        index, draws = self.epoch(indices, rng)
        pixels = augment.gather(self.images, index, draws, self.dataset.augmentation)
        labels, size = self.labels[index], self.training.batch_size
        for x, y in zip(pixels.split(size), labels.split(size), strict=True):
            yield augment.normalise(x, *self.constants), y

    def epoch(self, indices: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The images of an epoch in their order, [n], and the draws for their augmentation, [n, 4]."""
        n, size = len(indices), self.training.batch_size
        kept = n if self.training.keep_last else max(n - n % size, min(n, size))
        order = torch.from_numpy(rng.permutation(n)[:kept])
        draws = augment.draw(len(order), self.dataset.augmentation, rng).to(self.device)
        return indices[order.to(self.device)], draws

    def plain_batches(self, indices: Tensor, size: int = 500) -> Iterator[Tensor]:
        """Training images as they are, normalised, in order."""
        for part in indices.split(size):
            pixels = augment.gather(self.images, part, None, self.dataset.augmentation)
            yield augment.normalise(pixels, *self.constants)

    @staticmethod
    def _freeze(model: Net, phase: Phase) -> None:
        """Put the model in train mode, but for what the phase does not train."""
        model.train()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(phase.trains(name))
        for module in model.modules():  # a frozen layer must not move its BatchNorm buffers either
            own = list(module.parameters(recurse=False))
            if own and not any(p.requires_grad for p in own):
                module.eval()

    # --- rounds ---------------------------------------------------------------------------------------------------

    def sample(self, t: int) -> list[Client]:
        """The clients of round ``t``."""
        n = len(self.clients)
        k = max(1, round(self.participation * n))
        if k == n:
            return list(self.clients)
        chosen = seeds.generator(self.seed, "sampling", t).choice(n, k, replace=False)
        return [self.clients[i] for i in sorted(chosen)]

    def run_round(self) -> dict[str, Any]:
        """Run one round, evaluate if it is due, and return (and append to ``history``) its entry.

        The entry holds ``round`` (from 1), ``accuracy`` in percent (not after a round without evaluation), mean loss
        terms, ``seconds`` of training and aggregation, ``evaluation_seconds``, ``held_bytes`` (see `held_bytes`, the largest
        of any client), and ``finite``: False once a loss or the server holds NaN or Inf.
        """
        t = self.rounds_done
        begin = time.perf_counter()
        clients = self.sample(t)
        self.traffic = {}
        self.server = self.method.round(self, self.server, clients, t)
        losses = _mean_losses(clients)
        finite = all(map(math.isfinite, losses.values())) and _is_finite(self.server)
        trained = time.perf_counter()
        self.rounds_done = t + 1  # before the evaluation, which is in the round of the next broadcast
        entry: dict[str, Any] = {"round": t + 1, "finite": finite}
        if finite and (self.rounds_done % self.evaluate_every == 0 or self.rounds_done >= self.training.num_rounds):
            entry |= evaluation.evaluate(self)
        entry |= {f"loss/{name}": value for name, value in losses.items()}
        for direction, names in self.traffic.items():
            entry[f"{direction}_numbers"] = sum(n for n, _ in names.values())
            entry[f"{direction}_bytes"] = sum(b for _, b in names.values())
        entry["held_bytes"] = max(client.held for client in clients)
        entry |= {"seconds": trained - begin, "evaluation_seconds": time.perf_counter() - trained}
        self.history.append(entry)
        return entry

    def checkpoint(self) -> dict[str, Any]:
        """Everything that the rounds to come depend on; as every draw is keyed, no generator state is in it."""
        return {
            "rounds_done": self.rounds_done,
            "server": self.server,
            "memories": [client.memory for client in self.clients],
            "history": self.history,
            "traffic": self.traffic,
        }

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to where `checkpoint` was taken; a checkpoint that lacks something changes nothing and raises."""
        values = [checkpoint[name] for name in ("rounds_done", "server", "history", "traffic")]
        memories = list(zip(self.clients, checkpoint["memories"], strict=True))
        self.rounds_done, self.server, self.history, self.traffic = values
        for client, memory in memories:
            client.memory = memory


def train_eagerly(federation: Federation, clients: Sequence[Client], received: Sequence[Message], t: int) -> list[Message]:
    """The clients one by one, or several side by side, step by step."""
    return federation.each(clients, received, t, federation.local_update)


def take_steps(
    federation: Federation, client: Client, phase: Phase, given: dict[str, Any], rng: np.random.Generator
) -> None:
    """The SGD steps of a phase; the model holds the result."""
    model, loss, losses = client.model, federation.method.loss, client.losses
    optimizer = federation.method.optimizer(client, [p for p in model.parameters() if p.requires_grad], given)
    batches = (batch for _ in range(phase.epochs) for batch in federation.batches(client.indices, rng))
    for x, y in itertools.islice(batches, federation.training.local_steps):
        terms = loss(model, x, y, given)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
        client.steps += 1
        for name, value in terms.items():  # sums stay on the device until the round ends
            losses[name] = losses[name] + value.detach() if name in losses else value.detach()


def _mean_losses(clients: Sequence[Client]) -> dict[str, float]:
    """Mean of each loss term over the SGD steps of a round."""
    steps = sum(client.steps for client in clients)
    names = {name: None for client in clients for name in client.losses}
    return {n: float(sum(c.losses[n] for c in clients if n in c.losses)) / max(steps, 1) for n in names}


def _is_finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_finite, value))
    return True
