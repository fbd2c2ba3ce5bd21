"""All clients in one step: a trainer for GPUs, ``Federation(..., train=StackedTrainer())``.

A step of a small network is some dozens of operations of a few microseconds each: client by client,
their launches take the time and not the arithmetic. Here one step moves all clients, by the very
loss that a notebook exports, under `torch.vmap`; on CUDA it is recorded once and replayed. On a CPU
the plain loop is about as fast, and stays the default.
"""

import sys
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fednb.client import Client, Phase
from fednb.federation import Federation
from fednb.messages import Message
from fednb.training.loop import sgd_steps
from fednb.training.stack import Rows, StackedClients, WrongStep, stacked_axes

# Networks with more weights go one at a time, by the same recording: a step of ResNet-18 (11
# million) keeps a GPU busy for longer than its launches take, and ten times its activations may not
# fit. The papers' small networks have some 100,000.
LARGE = 1_000_000
MAX_STACKS = 16  # a learning rate that falls from round to round makes a new one in each


class TrainRequest(NamedTuple):
    """Who is to train in round ``t``, and what it received."""

    federation: Federation
    client: Client
    received: Message
    t: int


# Clients of one kind can share a stack: method, architecture, what is trained, SGD's options,
# shapes of what is given.
Kind = tuple[str, Hashable, tuple[str, ...], str, str]


class ClientRound:
    """What a client does in a round, as `Federation.local_update`, up to the steps of a phase."""

    def __init__(self, request: TrainRequest) -> None:
        federation, client, received, t = request
        self.federation = federation
        self.client = client
        self.given = federation.start_round(client, received, t)
        self.rng = federation.batch_generator(client, t)
        self.plan = federation.method.plan(client, t)
        self.batches: list[Any] = []
        self.trained: dict[str, torch.Size] = {}
        self.sgd_options: dict[str, Any] = {}
        self.kind: Kind | None = None  # None: there is nothing to stack

    def draw_batches(self, phase: Phase) -> None:
        """Set the model for a phase, draw its batches, and find the kind of its steps."""
        client = self.client
        client.set_trainable(phase)
        batches = self.federation.steps(client.indices, phase.epochs, self.rng)
        self.batches = list(batches)
        self.kind = None
        if not self.batches:
            return
        parameters = {
            name: value for name, value in client.model.named_parameters() if value.requires_grad
        }
        method = self.federation.method
        optimizer = method.optimizer(client, list(parameters.values()), self.given)
        self.trained = {name: value.shape for name, value in parameters.items()}
        if not is_plain_sgd(optimizer):
            self.train_alone()
            return
        options = optimizer.param_groups[0]
        left_out = ("params", "differentiable")
        self.sgd_options = {name: options[name] for name in options if name not in left_out}
        # what must stay the same for a step to be replayed: all but the numbers in tensors
        given = tree_map(_shape_or_value, self.given)
        self.kind = (
            type(method).__name__,
            client.architecture,
            tuple(self.trained),
            repr(self.sgd_options),
            repr(given),
        )

    def train_alone(self) -> None:
        """Make the steps of the phase in the plain loop."""
        sgd_steps(self.federation.method, self.client, self.given, self.batches)

    @property
    def num_weights(self) -> int:
        return sum(shape.numel() for shape in self.trained.values())


class StackedTrainer:
    """Trains the clients of a round together.

    Clients go together whose networks, trained parameters, settings of SGD and ``given`` have the
    same shape. The others, and whatever `torch.vmap` or a recording refuses, take their steps in
    the plain loop.

    Parameters
    ----------
    check: compare the first step of each kind with the plain loop's, and raise `WrongStep` if they differ; None: on a GPU.
    """

    def __init__(self, check: bool | None = None) -> None:
        self.check = check
        self.stacks: dict[Hashable, StackedClients] = {}
        self._refused: set[Kind] = set()  # kinds that cannot be stacked
        self._reasons: set[str] = set()  # that were given

    def __call__(
        self, federation: Federation, clients: Sequence[Client], received: Sequence[Message], t: int
    ) -> list[Message]:
        """The uploads of a federation's clients, in their order."""
        pairs = zip(clients, received, strict=True)
        return self.train(
            [TrainRequest(federation, client, message, t) for client, message in pairs]
        )

    def train(self, requests: Sequence[TrainRequest]) -> list[Message]:
        """The upload of each client, of federations that differ in nothing but the seed."""
        with ExitStack() as borrowed:
            for request in requests:
                borrowed.enter_context(request.federation.lend_model(request.client))
            rounds = [ClientRound(request) for request in requests]
            for number in range(max(len(client_round.plan) for client_round in rounds)):
                self._train_phase(rounds, number)
            return [one.federation.method.upload(one.client, one.given) for one in rounds]

    def _train_phase(self, rounds: Sequence[ClientRound], number: int) -> None:
        groups: dict[tuple[Kind, int | None], list[ClientRound]] = {}
        for i, client_round in enumerate(rounds):
            if number >= len(client_round.plan):
                continue
            client_round.draw_batches(client_round.plan[number])
            if client_round.kind is None:
                continue
            alone = i if client_round.num_weights > LARGE else None
            groups.setdefault((client_round.kind, alone), []).append(client_round)
        for (kind, _), group in groups.items():
            if kind in self._refused:
                for client_round in group:
                    client_round.train_alone()
            else:
                self._train_group(kind, group)

    def _train_group(self, kind: Kind, group: list[ClientRound]) -> None:
        rows = [Rows(one.client, one.given, one.batches) for one in group]
        masks = [_state_of(one.client.masks) for one in group]
        on_gpu = group[0].federation.images.is_cuda
        try:
            stack = self._stack(kind, group, rows)
            stack.train(rows, check=on_gpu if self.check is None else self.check)
        except WrongStep:
            raise
        except Exception as error:
            # vmap and CUDA's recordings refuse what they cannot do by errors of any type
            self._refused.add(kind)
            self._say_why(group[0], error)
            for client_round, state in zip(group, masks, strict=True):
                if state is not None:
                    client_round.client.masks.set_state(state)  # type: ignore[union-attr]
                client_round.train_alone()
            return
        for client_round in group:
            client_round.client.steps += len(client_round.batches)

    def _say_why(self, client_round: ClientRound, error: Exception) -> None:
        method = type(client_round.federation.method).__name__
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if reason not in self._reasons:
            self._reasons.add(reason)
            print(
                f"fednb: {method} trains client by client, as its step cannot be made for all at "
                f"once ({reason}).",
                file=sys.stderr,
            )

    def _stack(
        self, kind: Kind, group: Sequence[ClientRound], rows: Sequence[Rows]
    ) -> StackedClients:
        federation = group[0].federation
        epochs = max(phase.epochs for one in group for phase in one.plan)
        most = max(client.num_samples for one in group for client in one.federation.clients)
        axes = repr(stacked_axes([row.given for row in rows]))
        key = (kind, len(rows), epochs * most, axes)
        if key not in self.stacks:
            if len(self.stacks) >= MAX_STACKS:
                if federation.images.is_cuda:
                    torch.cuda.synchronize()  # replays that are under way still need their memory
                self.stacks.clear()
            first = group[0]
            self.stacks[key] = StackedClients(
                federation, rows, first.trained, first.sgd_options, epochs * most
            )
        return self.stacks[key]


class SeedsTogether(StackedTrainer):
    """Federations that differ in the seed alone: each runs in a thread of its own, and all train as
    one.

    ``num_seeds`` federations have this trainer. One that has ended says so by `leave`.
    """

    def __init__(self, num_seeds: int, check: bool | None = None) -> None:
        super().__init__(check)
        self._expected = num_seeds
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sequence[TrainRequest], Future[list[Message]]]] = []

    def train(self, requests: Sequence[TrainRequest]) -> list[Message]:
        """The uploads of one federation, once all of them have asked."""
        uploads: Future[list[Message]] = Future()
        with self._lock:
            self._waiting.append((requests, uploads))
            self._train_if_all_wait()
        return uploads.result()

    def leave(self) -> None:
        """One of them has ended: the others do not wait for it any more."""
        with self._lock:
            self._expected -= 1
            self._train_if_all_wait()

    def _train_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._expected:
            return
        waiting = self._waiting
        self._waiting = []
        try:
            together = [request for requests, _ in waiting for request in requests]
            all_uploads = iter(super().train(together))
            for requests, uploads in waiting:
                uploads.set_result([next(all_uploads) for _ in requests])
        except Exception as error:  # all of them must hear of it
            for _, uploads in waiting:
                uploads.set_exception(error)


def is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    """Whether all steps are alike: SGD without hooks or dampening, which spares the first step."""
    has_hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if type(optimizer) is not torch.optim.SGD or has_hooks or len(optimizer.param_groups) > 1:
        return False
    return not optimizer.param_groups[0]["dampening"]


def _shape_or_value(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


def _state_of(generator: torch.Generator | None) -> Tensor | None:
    return None if generator is None else generator.get_state()
