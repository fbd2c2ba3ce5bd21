"""One step of all clients at once, on a GPU recorded once and replayed.

A step of a small network is some dozens of operations of a few microseconds each: client by client, their launches take the
time and not the arithmetic. Here the weights of all clients are the rows of a matrix [n, P], and one step moves them all. It
evaluates the very loss that a notebook exports under `torch.vmap`; the sum over the clients has in each row the gradient of
one client, as no loss reads another's row. What a step reads lies where it stays, so that CUDA can record it as a graph.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from fednb import seeds
from fednb.data import augment
from fednb.federation import Client, Federation, Message, Phase, State, take_steps
from fednb.models import Dropout, seed_dropout

# Networks with more weights go one at a time, by the same recording: a step of ResNet-18 (11 million) keeps a GPU busy for
# longer than its launches take, and ten times its activations may not fit. The papers' small networks have some 100,000.
LARGE = 1_000_000
# How stacked convolutions are computed (see `_Layers`): on a GPU grouped ones are slow where a group has few channels.
UNFOLD = {"cpu": False, "cuda": True}
WARM_UP = 3  # steps before a recording: libraries choose their kernels and allocate what they need
KEPT = 16  # recordings at most: a learning rate that falls from round to round makes one in each
Asked = tuple[Federation, Client, Message, int]  # who is to train, what it received, and the round


@dataclass
class Work:
    """What a client does in a round, and in a phase of it."""

    federation: Federation
    client: Client
    given: dict[str, Any]
    plan: list[Phase]
    state: State  # its weights and buffers while it has no network in hand
    rng: np.random.Generator  # of batches and augmentation
    masks: torch.Generator  # of dropout
    trained: tuple[str, ...] = ()
    sgd: dict[str, Any] | None = None
    index: Tensor | None = None  # images of all batches one after the other, int64 [m]
    draws: Tensor | None = None  # of their augmentation, [m, 4]
    sizes: Sequence[int] = ()  # of the batches


class Batched:
    """Train the clients of a round together: ``Federation(..., train=Batched())``.

    Clients go together whose networks, trained parameters, settings of SGD and ``given`` have the same shape. What is not
    plain SGD, such as the optimiser with a hook of NIID-Bench's SCAFFOLD, goes client by client and step by step.
    """

    def __init__(self) -> None:
        self.stacks: dict[Hashable, Stack] = {}

    def __call__(self, fed: Federation, clients: Sequence[Client], received: Sequence[Message], t: int) -> list[Message]:
        return self.train([(fed, *pair, t) for pair in zip(clients, received, strict=True)])

    def train(self, asked: Sequence[Asked]) -> list[Message]:
        """The upload of each client. They may be of several federations that differ in nothing but the seed."""
        works = [_begin(*one) for one in asked]
        for number in range(max(len(work.plan) for work in works)):
            groups: dict[Hashable, list[Work]] = {}
            for place, work in enumerate(works):
                if number < len(work.plan) and _can_be_stacked(work, work.plan[number]):
                    large = sum(work.state[name].numel() for name in work.trained) > LARGE
                    kind = work.client.architecture, work.trained, repr(work.sgd), _shape_of(work.given)
                    groups.setdefault((*kind, place if large else None), []).append(work)
            for (*kind, _), group in groups.items():
                self._stack(tuple(kind), group).train(group)
        return [_end(work) for work in works]

    def _stack(self, kind: Hashable, works: list[Work]) -> Stack:
        epochs = max(phase.epochs for work in works for phase in work.plan)
        room = epochs * max(client.num_samples for work in works for client in work.federation.clients)
        shared = tree_map(_is_shared, *(work.given for work in works))
        key = kind, len(works), room, repr(shared)
        if key not in self.stacks:
            if len(self.stacks) >= KEPT:
                if works[0].federation.images.is_cuda:
                    torch.cuda.synchronize()  # replays that are under way still need their memory
                self.stacks.clear()
            self.stacks[key] = Stack(works, shared, room)
        return self.stacks[key]


class Together:
    """Federations that differ in the seed alone, ``num`` of them: each runs in a thread of its own, and all train as one."""

    def __init__(self, num: int) -> None:
        self._expected, self._trainer, self._changed = num, Batched(), threading.Condition()
        self._asked: dict[int, list[Asked]] = {}
        self._made: dict[int, list[Message] | Exception] = {}

    def __call__(self, fed: Federation, clients: Sequence[Client], received: Sequence[Message], t: int) -> list[Message]:
        with self._changed:
            self._asked[id(fed)] = [(fed, *pair, t) for pair in zip(clients, received, strict=True)]
            self._train_if_all_ask()
            self._changed.wait_for(lambda: id(fed) in self._made)
            made = self._made.pop(id(fed))
        if isinstance(made, Exception):
            raise made
        return made

    def leave(self) -> None:
        """One of them has ended: the others do not wait for it any more."""
        with self._changed:
            self._expected -= 1
            self._train_if_all_ask()

    def _train_if_all_ask(self) -> None:
        if not self._asked or len(self._asked) < self._expected:
            return
        try:
            uploads = iter(self._trainer.train([one for own in self._asked.values() for one in own]))
            self._made |= {key: [next(uploads) for _ in own] for key, own in self._asked.items()}
        except Exception as error:  # all of them must hear of it
            self._made |= dict.fromkeys(self._asked, error)
        self._asked = {}
        self._changed.notify_all()


# --- a client's round, as in `Federation.local_update` ----------------------------------------------------------------


def _begin(federation: Federation, client: Client, received: Message, t: int) -> Work:
    with federation.lend_model(client):
        given, rng = federation.begin(client, received, t), seeds.generator(federation.seed, "batches", t, client.id)
        masks = torch.Generator(federation.device).set_state(federation.masks[id(client.model)].get_state())
        return Work(federation, client, given, federation.method.plan(client, t), client.state(), rng, masks)


def _can_be_stacked(work: Work, phase: Phase) -> bool:
    """Whether a phase has steps that can go together; then their batches are drawn, else they are made here, if any."""
    federation, client, batch = work.federation, work.client, work.federation.training.batch_size
    with federation.lend_model(client):
        model = client.model
        model.load_state_dict(work.state)
        federation.freeze(model, phase)
        work.trained = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        optimizer = federation.method.optimizer(client, [p for p in model.parameters() if p.requires_grad], work.given)
        if not is_plain(optimizer):
            seed_dropout(model, work.masks)
            take_steps(federation, client, phase, work.given, work.rng)
            seed_dropout(model, federation.masks[id(model)])
            work.state = client.state()
            return False
    work.sgd = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
    epochs, sizes, limit = [], [], federation.training.local_steps
    while len(epochs) < phase.epochs and (limit is None or len(sizes) < limit):
        epochs.append(federation.epoch(client.indices, work.rng))
        sizes += [len(part) for part in epochs[-1][0].split(batch)]
    work.sizes = sizes[:limit]
    if work.sizes:
        work.index, work.draws = (torch.cat(parts)[: sum(work.sizes)] for parts in zip(*epochs, strict=True))
        client.steps += len(work.sizes)
    return bool(work.sizes)


def _end(work: Work) -> Message:
    with work.federation.lend_model(work.client):
        work.client.model.load_state_dict(work.state)
        return work.federation.method.upload(work.client, work.given)


def is_plain(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step is the same in every row and round: SGD without hooks, nor dampening, which spares the first step."""
    hooks, groups = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks, optimizer.param_groups
    return type(optimizer) is torch.optim.SGD and not hooks and len(groups) == 1 and not groups[0]["dampening"]


def _shape_of(tree: Any) -> str:
    """What must stay the same for a step to be replayed: all but the numbers in tensors."""
    return repr(tree_map(lambda value: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value, tree))


def _is_shared(*values: Any) -> bool:
    """Whether all clients have the very same tensor; what is no tensor has the same value anyway."""
    if not isinstance(values[0], Tensor):
        return True
    return len(values) > 1 and len({(value.data_ptr(), value.shape, value.stride()) for value in values}) == 1


class Stack:
    """Clients that train together: row i of every tensor is the i-th one's.

    Parameters
    ----------
    works
        Of the clients; those of later calls of `train` have the same shapes.
    shared
        A tree like ``given``: which of its leaves all clients share.
    room
        How many images a client sees at most in a phase, all epochs together.
    """

    def __init__(self, works: Sequence[Work], shared: Any, room: int) -> None:
        first, n, zeros = works[0], len(works), partial(torch.zeros, device=works[0].federation.images.device)
        federation, key = first.federation, first.client.architecture
        model = federation.build_model() if key is None else federation.build_model(key)
        self.federation, self.sgd, self.shared = federation, first.sgd, shared
        self.model = model.to(federation.device, memory_format=torch.channels_last)  # its layers; its weights play no part
        federation.freeze(self.model, Phase(1, set(first.trained).__contains__))
        self.loss = _Loss(federation.method, self.model)
        self.shapes = {name: first.state[name].shape for name in first.trained}
        self.widths = [math.prod(shape) for shape in self.shapes.values()]
        self.weights, self.momentum = zeros(n, sum(self.widths)), zeros(n, sum(self.widths))
        rest = {name: value for name, value in first.state.items() if name not in self.shapes}
        self.rest = {name: zeros(n, *value.shape, dtype=value.dtype) for name, value in rest.items()}
        self.given = self._of(works, lambda value: value.detach().to(self.weights.device, copy=True))
        self.index, self.draws = zeros(n, room, dtype=torch.long), zeros(n, room, 4, dtype=first.draws.dtype)
        self.masks = zeros(n, room, self._numbers_per_image(first))
        self.place, self.who = zeros(n, dtype=torch.long), zeros(n, dtype=torch.long)  # of next batches; who steps
        self.losses: dict[str, Tensor] = {}
        self.pool: Any = None
        self._replays: dict[tuple[int, int, bool], Callable[[], None]] = {}

    def _of(self, works: Sequence[Work], put: Callable[[Tensor], Tensor]) -> Any:
        """What the clients were given, stacked where it is not shared."""

        def one(shared: bool, *values: Any) -> Any:
            return put(values[0] if shared else torch.stack(values)) if isinstance(values[0], Tensor) else values[0]

        return tree_map(one, self.shared, *(work.given for work in works))

    def _numbers_per_image(self, work: Work) -> int:
        """How many numbers dropout draws for an image in a step."""
        if not any(isinstance(module, Dropout) and module.training for module in self.model.modules()):
            return 0
        drawn, index = [], work.index[: work.sizes[0]]
        seed_dropout(self.model, lambda shape: drawn.append(math.prod(shape)) or self.weights.new_ones(shape))
        with torch.no_grad():
            self.loss(_inputs(self.federation, index, None), self.federation.labels[index], work.given)
        return sum(drawn) // len(index)

    def train(self, works: Sequence[Work]) -> None:
        """Make all steps of a phase; the clients' states and sums of losses hold the result."""
        works = sorted(works, key=lambda work: -len(work.sizes))  # those with a batch left are then the first, as a rule
        masks = [torch.rand(len(w.index), *self.masks.shape[2:], generator=w.masks, device=self.masks.device) for w in works]
        self._fill(works, masks)
        steps = _schedule([work.sizes for work in works])
        kinds = [(len(who), size, who == list(range(len(who)))) for who, size in steps]
        for kind in (new := [kind for kind in dict.fromkeys(kinds) if kind not in self._replays]):
            self._replays[kind] = self._record(*kind)
        if new:  # a recording makes steps
            self._fill(works, masks)
        order = torch.tensor([one for who, _ in steps for one in who]).to(self.who.device)
        for kind, who in zip(kinds, order.split([k for k, _, _ in kinds]), strict=True):
            if not kind[-1]:
                self.who[: len(who)] = who
            self._replays[kind]()
        for i, work in enumerate(works):
            pieces = zip(self.shapes.items(), self.weights[i].split(self.widths), strict=True)
            work.state = {name: values[i].clone() for name, values in self.rest.items()}
            work.state |= {name: piece.view(shape).clone() for (name, shape), piece in pieces}
            before = work.client.losses
            before |= {name: before.get(name, 0) + sums[i] for name, sums in self.losses.items()}

    def _fill(self, works: Sequence[Work], masks: Sequence[Tensor]) -> None:
        given = self._of(works, lambda value: value)
        tree_map(lambda kept, value: kept.copy_(value) if isinstance(kept, Tensor) else None, self.given, given)
        for i, work in enumerate(works):
            torch.cat([work.state[name].reshape(-1) for name in self.shapes], out=self.weights[i])
            for name, values in self.rest.items():
                values[i] = work.state[name]
            for kept, own in ((self.index, work.index), (self.draws, work.draws), (self.masks, masks[i])):
                kept[i, : len(own)] = own
        for tensor in (self.momentum, self.place, *self.losses.values()):
            tensor.zero_()  # the first step then makes the momentum the gradient, as for a new optimiser

    def _step(self, k: int, size: int, first: bool) -> None:
        """A step of the first ``k`` clients, or of the first ``k`` that ``who`` names, on a batch of this size each."""
        fed, sgd = self.federation, self.sgd
        who = slice(k) if first else self.who[:k]  # views of the first, copies of others
        ids = torch.arange(k, device=self.who.device) if first else who
        at = ids[:, None], self.place[who, None] + torch.arange(size, device=self.who.device)
        index = self.index[at]
        x = _inputs(fed, index.flatten(), self.draws[at].flatten(0, 1)).unflatten(0, (k, size))
        rest = {name: values[who] for name, values in self.rest.items()}
        w, momentum = self.weights[who].detach().requires_grad_(), self.momentum[who]
        given = tree_map(lambda shared, value: value if shared else value[who], self.shared, self.given)
        axes = 0, 0, 0, 0, 0, tree_map(lambda shared: None if shared else 0, self.shared)
        with _Layers(unfold=UNFOLD[self.who.device.type] and len(self.weights) > 1):
            terms = torch.vmap(self._terms, axes)(w, rest, self.masks[at].flatten(1), x, fed.labels[index], given)
        (gradient,) = torch.autograd.grad(sum(value.sum() for value in terms.values()), w)
        w = w.detach()
        if sgd["weight_decay"]:
            gradient = gradient.add(w, alpha=sgd["weight_decay"])
        if sgd["momentum"]:
            momentum.mul_(sgd["momentum"]).add_(gradient)
            gradient = gradient.add(momentum, alpha=sgd["momentum"]) if sgd["nesterov"] else momentum
        w.add_(gradient, alpha=-sgd["lr"])
        if not first:
            self.weights[who], self.momentum[who] = w, momentum
            for name, values in self.rest.items():
                values[who] = rest[name]
        self.place.index_add_(0, ids, torch.full_like(ids, size))
        for name, value in terms.items():
            if name not in self.losses:
                self.losses[name] = torch.zeros_like(self.weights[:, 0])
            self.losses[name].index_add_(0, ids, value.detach())

    def _terms(
        self, w: Tensor, rest: State, masks: Tensor, x: Tensor, y: Tensor, given: dict[str, Any]
    ) -> dict[str, Tensor]:
        """The loss of one client, of its row of weights."""
        pieces = zip(self.shapes.items(), w.split(self.widths), strict=True)
        state = rest | {name: piece.view(shape) for (name, shape), piece in pieces}

        def draw(shape: Sequence[int]) -> Tensor:
            nonlocal masks
            numbers, masks = masks[: math.prod(shape)], masks[math.prod(shape) :]
            return numbers.view(shape)

        seed_dropout(self.model, draw)
        return functional_call(self.loss, {f"model.{name}": value for name, value in state.items()}, (x, y, given))

    def _record(self, k: int, size: int, first: bool) -> Callable[[], None]:
        step = partial(self._step, k, size, first)
        if self.who.device.type != "cuda":
            return step
        here, beside, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self.place.zero_()
                step()
            self.place.zero_()
        here.wait_stream(beside)
        gc.disable()  # a collection may free an older graph: that spoils the one being recorded
        try:
            with torch.cuda.graph(graph, self.pool, beside):
                step()
        finally:
            gc.enable()
        self.pool = graph.pool()  # recordings are never replayed at once, so they share their memory
        return graph.replay


def _schedule(sizes: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Who steps when: of each step the clients and the size of their batches; each client's batches stay in order."""
    steps = []
    for number in range(max(map(len, sizes))):
        groups: dict[int, list[int]] = {}
        for i, own in enumerate(sizes):
            if number < len(own):
                groups.setdefault(own[number], []).append(i)
        steps += [(who, size) for size, who in groups.items()]
    return steps


def _inputs(federation: Federation, index: Tensor, draws: Tensor | None) -> Tensor:
    pixels = augment.gather(federation.images, index, draws, federation.dataset.augmentation)
    return augment.normalise(pixels, *federation.constants)


class _Loss(nn.Module):
    """A method's loss as a module, so that `functional_call` can give its network other weights."""

    def __init__(self, method: Any, model: nn.Module) -> None:
        super().__init__()
        self.method, self.model = method, model

    def forward(self, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        return self.method.loss(self.model, x, y, given)


class _Layers(TorchFunctionMode):
    """Layers in the form that vmap turns into few products of all networks' matrices.

    With ``unfold`` a convolution becomes one too; without it, one grouped convolution, with a group for each network.
    """

    def __init__(self, unfold: bool) -> None:
        super().__init__()
        self.unfold = unfold

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function is F.linear:  # as addmm, vmap multiplies by factors of 1
            x, weight, bias = args
            return x @ weight.mT if bias is None else x @ weight.mT + bias
        if function is not F.conv2d or not self.unfold or args[6] != 1:
            return function(*args, **(kwargs or {}))
        x, weight, bias, stride, padding, dilation, _ = args
        patches = F.unfold(x, weight.shape[2:], dilation, padding, stride)  # [B, C rows columns, places]
        y = weight.flatten(1) @ patches.transpose(0, 1).flatten(1)  # [out, B places]
        y = y if bias is None else y + bias[:, None]
        height = (x.shape[2] + 2 * padding[0] - dilation[0] * (weight.shape[2] - 1) - 1) // stride[0] + 1
        return y.view(len(weight), len(x), height, -1).transpose(0, 1)
