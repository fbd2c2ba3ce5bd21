"""Local training as replays of one captured step.

A step of a small network is a few dozen kernels of some microseconds; launched one by one from Python they cost ten times
that. Here a step (gather and augment a batch, losses, backward, SGD) reads and writes nothing but tensors that stay where
they are, so that CUDA can record it once as a graph and replay it. Per client and round the tensors are refilled: weights,
the order of the images, the draws of the augmentation, what the method's ``prepare`` returned.

Without a GPU the same step runs unrecorded. It then gives bit for bit what the plain loop gives, and that is
how it is tested.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fednb.data import augment
from fednb.federation import Client, Federation, Message, Phase, take_steps
from fednb.models import Net

WARM_UP = 3  # steps before the recording: libraries choose their kernels and allocate what they need
KEPT = 16  # recordings of a network, at most: a learning rate that falls from round to round makes one in each
_lock = threading.Lock()  # one recording at a time; other threads may go on replaying


def shape_of(value: Any) -> Hashable:
    """What of a tree of dicts, lists and tensors must stay the same for a step to be replayed: all but the numbers."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, dict):
        return "dict", tuple((name, shape_of(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(map(shape_of, value))
    return value  # a Python value becomes part of the recording


def static(value: Any, device: torch.device | None = None) -> Any:
    """A copy of a tree whose tensors are its own; on ``device``, if given: a recording would keep a host tensor's number."""
    if isinstance(value, Tensor):
        return value.detach().to(device or value.device, copy=True)
    if isinstance(value, dict):
        return {name: static(one, device) for name, one in value.items()}
    return type(value)(static(one, device) for one in value) if isinstance(value, (list, tuple)) else value


def refill(kept: Any, value: Any) -> None:
    """Put the numbers of one tree into the tensors of another of the same shape."""
    if isinstance(kept, Tensor):
        kept.copy_(value)
    elif isinstance(kept, dict):
        for name, one in kept.items():
            refill(one, value[name])
    elif isinstance(kept, (list, tuple)):
        for one, other in zip(kept, value, strict=True):
            refill(one, other)


class Recorder:
    """Train the clients of a round by replays: `Federation(..., train=Recorder())`.

    Several workers have a stream each. What no recording can hold (see `can_be_captured`) goes step by step.
    """

    def __init__(self) -> None:
        self.recordings: dict[int, Recordings] = {}  # of each network, by its id

    def __call__(
        self, federation: Federation, clients: Sequence[Client], received: Sequence[Message], t: int
    ) -> list[Message]:
        steps = partial(_take_steps, self.recordings)
        update = partial(federation.local_update, steps=steps)
        if federation.device == "cpu" or federation.workers == 1 or len(clients) == 1:
            return federation.each(clients, received, t, update)
        begin = torch.cuda.current_stream(federation.device)

        def one(client: Client, message: Message) -> Message:
            stream = torch.cuda.Stream(federation.device)
            stream.wait_stream(begin)
            with torch.cuda.stream(stream), federation.lend_model(client):
                kept = dict(client.memory)  # what the client replaces may still be read by its stream
                upload = update(client, message, t)
                stream.synchronize()  # the network's next client works on another stream
                del kept
            return upload

        with ThreadPoolExecutor(federation.workers) as pool:
            return list(pool.map(one, clients, received))


def _take_steps(
    recordings: dict[int, Recordings],
    federation: Federation,
    client: Client,
    phase: Phase,
    given: dict[str, Any],
    rng: np.random.Generator,
) -> None:
    """As `fednb.federation.take_steps`, with the same draws."""
    model, size = client.model, federation.training.batch_size
    optimizer = federation.method.optimizer(client, [p for p in model.parameters() if p.requires_grad], given)
    if not can_be_captured(optimizer):
        return take_steps(federation, client, phase, given, rng)
    epochs = [federation.epoch(client.indices, rng) for _ in range(phase.epochs)]
    sizes = [len(batch) for index, _ in epochs for batch in index.split(size)][: federation.training.local_steps]
    if not sizes:
        return None
    index, draws = (torch.cat(parts)[: sum(sizes)] for parts in zip(*epochs, strict=True))
    room = max(c.num_samples for c in federation.clients) * phase.epochs
    kind = trained(model), settings_of(optimizer), shape_of(given), room
    if id(model) not in recordings:
        recordings[id(model)] = Recordings(federation.images.device)
    trainer = recordings[id(model)].trainer(kind, partial(Trainer, federation, model, optimizer, given, room))
    client.losses = trainer.train(given, index, draws, sizes, client.losses)
    client.steps += len(sizes)
    return None


class Recordings:
    """The trainers of one network, which one client at a time has in hand, and on a GPU the place where they are recorded.

    All recordings of a network are made on one stream of its own and share their memory, as they are never replayed at once.
    The stream has another priority than those on which clients work: streams come from a small pool, one for each priority,
    and one of the same pool could be in a client's hands already.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.trainers: dict[Hashable, Trainer] = {}
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device, priority=-1)
            self.pool = torch.cuda.graph_pool_handle()

    def trainer(self, kind: Hashable, make: Callable[[Recordings], Trainer]) -> Trainer:
        """The trainer of a kind, made if there is none; when there are too many, all others are forgotten first."""
        if kind not in self.trainers:
            if len(self.trainers) >= KEPT:
                self._forget()
            self.trainers[kind] = make(self)
        return self.trainers[kind]

    def _forget(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # replays that are under way still need their memory
            for trainer in self.trainers.values():
                trainer.model.zero_grad()  # gradients lie in it, too
            self.pool = torch.cuda.graph_pool_handle()
        self.trainers.clear()


class Trainer:
    """Local training of one network, for clients whose ``given`` has one shape.

    Parameters
    ----------
    model
        In train mode, with the parameters that are trained requiring a gradient. Its memory must not move.
    optimizer
        Of these parameters, without hooks; its settings become part of the recording (see `settings_of`). Its momentum
        starts anew with each call of `train`.
    given
        As the method's `prepare` returned it; copied.
    room
        How many images a client sees at most in a call of `train`, all epochs together.
    recordings
        Of this network.
    """

    def __init__(
        self,
        federation: Federation,
        model: Net,
        optimizer: torch.optim.Optimizer,
        given: dict[str, Any],
        room: int,
        recordings: Recordings,
    ) -> None:
        device = federation.images.device
        self.federation, self.model, self.optimizer, self.recordings = federation, model, optimizer, recordings
        self.generator = federation.masks[id(model)]  # of the network's dropout
        self.given = static(given, device)
        self.index = torch.zeros(room, dtype=torch.long, device=device)
        self.draws = torch.zeros(room, 4, device=device)
        self.place = torch.zeros((), dtype=torch.long, device=device)  # of the next batch
        self.losses: dict[str, Tensor] = {}
        self._replays: dict[int, Callable[[], None]] = {}

    def train(
        self, given: dict[str, Any], index: Tensor, draws: Tensor, sizes: list[int], totals: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Make one step per batch; the model holds the result.

        Parameters
        ----------
        index, draws
            Images of all batches one after the other, int64 [n], and what `augment.draw` drew for them, [n, 4].
        sizes
            Of the batches.
        totals
            Sums of the loss terms so far.

        Returns
        -------
        dict
            The sums with this training.
        """
        refill(self.given, given)
        self.index[: len(index)].copy_(index)
        self.draws[: len(draws)].copy_(draws)
        for size in sorted(set(sizes) - self._replays.keys()):
            self._replays[size] = self._record(size)
        self._reset(totals)
        for size in sizes:
            self._replays[size]()
        return totals | {name: total.clone() for name, total in self.losses.items()}

    def _reset(self, totals: dict[str, Tensor]) -> None:
        self.place.zero_()
        for name, total in self.losses.items():
            total.copy_(totals[name]) if name in totals else total.zero_()
        for state in self.optimizer.state.values():
            if (buffer := state.get("momentum_buffer")) is not None:
                buffer.zero_()  # the first step then makes it the gradient, as for a new optimiser

    def _step(self, size: int) -> None:
        fed, rows = self.federation, self.place + torch.arange(size, device=self.place.device)
        index = self.index[rows]
        pixels = augment.gather(fed.images, index, self.draws[rows], fed.dataset.augmentation)
        terms = fed.method.loss(self.model, augment.normalise(pixels, *fed.constants), fed.labels[index], self.given)
        self.optimizer.zero_grad()
        sum(terms.values()).backward()
        self.optimizer.step()
        self.place += size
        for name, value in terms.items():
            if name not in self.losses:
                self.losses[name] = torch.zeros_like(value)
            self.losses[name] += value.detach()

    def _record(self, size: int) -> Callable[[], None]:
        """A function that makes a step on a batch of this size. The model is left as it was, the generator too."""
        weights, masks = static(self.model.state_dict()), self.generator.get_state()
        if self.place.device.type == "cuda":
            with _alone(), torch.cuda.device(self.place.device):
                replay = self._record_graph(size)
        else:
            replay = partial(self._step, size)
            if not self.losses:  # their names are known after a step
                self._step(size)
        self.model.load_state_dict(weights)
        self.generator.set_state(masks)
        return replay

    def _record_graph(self, size: int) -> Callable[[], None]:
        here, beside, graph = torch.cuda.current_stream(), self.recordings.stream, torch.cuda.CUDAGraph()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self.place.zero_()
                self._step(size)
        here.wait_stream(beside)
        graph.register_generator_state(self.generator)
        self.optimizer.zero_grad()  # gradients belong to the recording
        with torch.cuda.graph(graph, self.recordings.pool, beside, capture_error_mode="thread_local"):
            self._step(size)
        here.wait_stream(beside)
        return graph.replay


@contextmanager
def _alone() -> Iterator[None]:
    """No other recording, and no garbage collection, which may free an older graph: that spoils the one being recorded."""
    with _lock:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def can_be_captured(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of this optimiser is the same in every round: plain SGD without hooks.

    With dampening it is not: the first gradient goes into a new momentum whole.
    """
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return type(optimizer) is torch.optim.SGD and not hooks and not any(g["dampening"] for g in optimizer.param_groups)


def settings_of(optimizer: torch.optim.Optimizer) -> Hashable:
    """What a recording keeps of an optimiser: with another learning rate, say, it must be made anew."""
    return repr([{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups])


def trained(model: nn.Module) -> tuple[str, ...]:
    """The names of the parameters that are trained."""
    return tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
