"""All clients in one step: a trainer for GPUs, ``Federation(..., train=StackedTrainer())``.

A step of a small network is some dozens of operations of a few microseconds each: client by client,
their launches take the time and not the arithmetic. Here one step moves all clients, by the very
loss that a notebook exports, under `torch.vmap`; on CUDA it is recorded once and replayed. On a CPU
the plain loop is about as fast, and stays the default.
"""

import importlib.util
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch

from fednb.client import Client
from fednb.federation import Federation
from fednb.gpu.stack import ClientRound, Kind, StackedClients, WrongStep, stacked_axes
from fednb.messages import Message

# Networks with more weights go one at a time, by the same recording: a step of ResNet-18 (11
# million) keeps a GPU busy for longer than its launches take, and ten times its activations may not
# fit. The papers' small networks have some 100,000.
LARGE = 1_000_000
MAX_STACKS = 16  # a learning rate that falls from round to round makes a new one in each

Recipe = tuple[type, str]
Made = TypeVar("Made")


class TrainRequest(NamedTuple):
    """Who is to train in round ``t``, and what it received."""

    federation: Federation
    client: Client
    received: Message
    t: int


class StackedTrainer:
    """Trains the clients of a round together.

    Clients go together whose networks, trained parameters, settings of SGD and ``given`` have the
    same shape. The others, and whatever `torch.vmap` or a recording refuses, take their steps in
    the plain loop. What was made for one federation serves others that differ in the seed alone;
    for any other it is made, and checked, anew.

    Parameters
    ----------
    check: compare the first step of each kind with the plain loop's, and raise `WrongStep` if they
        differ; None: on a GPU.
    kernels: make layers by Triton's kernels; None: on a GPU, if Triton is there. Where they fail,
        the trainer says so, and goes on with products of matrices.
    """

    def __init__(self, check: bool | None = None, kernels: bool | None = None) -> None:
        self.check = check
        self.kernels = kernels
        self.stacks: dict[Hashable, StackedClients] = {}
        self._refused: set[Kind] = set()  # kinds that cannot be stacked
        self._said: set[str] = set()
        self._served: WeakValueDictionary[int, Federation] = WeakValueDictionary()  # by identity
        self._recipe: Recipe | None = None  # theirs

    def __call__(
        self, federation: Federation, clients: Sequence[Client], received: Sequence[Message], t: int
    ) -> list[Message]:
        """The uploads of a federation's clients, in their order."""
        pairs = zip(clients, received, strict=True)
        return self.train([TrainRequest(federation, *pair, t) for pair in pairs])

    def train(self, requests: Sequence[TrainRequest]) -> list[Message]:
        """Train clients of federations that differ in the seed alone; return the upload of each.

        Federations that differ in more are a ``ValueError``.
        """
        self._serve({id(request.federation): request.federation for request in requests})
        with ExitStack() as borrowed:
            for request in requests:
                borrowed.enter_context(request.federation.at_work(request.client))
            rounds = [ClientRound(*request) for request in requests]
            for number in range(max(len(client_round.plan) for client_round in rounds)):
                self._train_phase(rounds, number)
            return [one.federation.method.upload(one.client, one.given) for one in rounds]

    def _serve(self, federations: Mapping[int, Federation]) -> None:
        """Forget what was made for other federations: a step has their settings and images in it.

        Two that differ in more than the seed cannot be trained together: that is a ``ValueError``.
        """
        for number, federation in federations.items():
            if number in self._served:
                continue
            recipe = recipe_of(federation)
            if recipe != self._recipe:
                self._served.clear()
                self._forget_stacks(federation)
                self._refused.clear()
                self._recipe = recipe
            self._served[number] = federation
        if not all(number in self._served for number in federations):
            raise ValueError("federations that are trained together may differ in the seed alone")

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

    def _train_group(self, kind: Kind, group: Sequence[ClientRound]) -> None:
        masks = [one.client.dropout_generator.get_state() for one in group]
        images = group[0].federation.images
        device = torch.device(images.device)
        on_gpu = device.type == "cuda"
        if self.kernels is None:
            self.kernels = on_gpu and importlib.util.find_spec("triton") is not None
        try:
            stack = self._stack(kind, group)
            stack.train(group, check=on_gpu if self.check is None else self.check)
            return
        except WrongStep as error:
            if not self.kernels:
                raise
            reason = one_line(error)
        except Exception as error:
            # vmap, Triton and CUDA's recordings refuse what they cannot do by errors of any type
            reason = one_line(error)
        for client_round, state in zip(group, masks, strict=True):
            client_round.client.dropout_generator.set_state(state)
        if self.kernels:
            self._train_without_kernels(kind, group, reason)
            return
        self._refused.add(kind)
        self._say(
            f"{kind[0]} trains client by client, as its step cannot be made for all "
            f"at once ({reason})."
        )
        for client_round in group:
            client_round.train_alone()

    def _train_without_kernels(self, kind: Kind, group: Sequence[ClientRound], reason: str) -> None:
        """Try the same by products of matrices; where that works, leave the kernels out for good."""
        self.kernels = False
        self._train_group(kind, group)
        if kind in self._refused:  # it was not for the kernels
            self.kernels = True
            return
        self._say(f"layers are products of matrices from now on, as a kernel failed ({reason}).")

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            print(f"fednb: {sentence}", file=sys.stderr)

    def _stack(self, kind: Kind, group: Sequence[ClientRound]) -> StackedClients:
        epochs = max(phase.epochs for one in group for phase in one.plan)
        most = max(client.num_samples for one in group for client in one.federation.clients)
        axes = repr(stacked_axes([one.given for one in group]))
        key = (kind, len(group), epochs * most, axes, self.kernels)
        if key not in self.stacks:
            if len(self.stacks) >= MAX_STACKS:
                self._forget_stacks(group[0].federation)
            self.stacks[key] = StackedClients(group, epochs * most, bool(self.kernels))
        return self.stacks[key]

    def _forget_stacks(self, federation: Federation) -> None:
        if self.stacks and torch.device(federation.images.device).type == "cuda":
            torch.cuda.synchronize()  # replays that are under way still need their memory
        self.stacks.clear()


def recipe_of(federation: Federation) -> Recipe:
    """Return what a step has in it of a federation: all that federations of several seeds share.

    The class of the method is among it, as a notebook's cell that is executed again makes a new one
    of the same name.
    """
    method, dataset = federation.method, federation.dataset
    images = (dataset.fingerprint, dataset.augmentation, dataset.mean, dataset.std)
    networks = [federation.new_network(key) for key in federation.initial]
    rest = (method, images, federation.training, str(federation.device), networks)
    return type(method), repr(rest)


def one_line(error: Exception) -> str:
    """Return what an error says, in a line of at most 200 letters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


class SeedsTogether(StackedTrainer):
    """Federations that differ in the seed alone: each in a thread of its own, and all train as one.

    ``num_seeds`` federations have this trainer. One that has ended says so by `leave`.
    """

    def __init__(self, num_seeds: int, check: bool | None = None) -> None:
        super().__init__(check)
        self._expected = num_seeds
        self._lock = threading.Lock()
        self._waiting: list[tuple[Sequence[TrainRequest], Future[list[Message]]]] = []

    def train(self, requests: Sequence[TrainRequest]) -> list[Message]:
        """Return the uploads of one federation, once all of them have asked."""
        uploads: Future[list[Message]] = Future()
        with self._lock:
            self._waiting.append((requests, uploads))
            self._train_if_all_wait()
        return uploads.result()

    def leave(self) -> None:
        """Tell the others not to wait any more for one that has ended."""
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


def for_all_seeds(make: Callable[[int, SeedsTogether], Made], seeds: Sequence[int]) -> list[Made]:
    """Let federations of several seeds train as one: up to rounding, as each would alone.

    ``make`` is called in a thread for each seed, with the trainer that they have in common.
    """
    together = SeedsTogether(len(seeds))

    def make_one(seed: int) -> Made:
        try:
            return make(seed, together)
        finally:
            together.leave()

    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(make_one, seeds))
