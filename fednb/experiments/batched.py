"""One step of all clients at once, on a GPU recorded once and replayed.

A step of a small network is some dozens of operations of a few microseconds each: client by client, their launches take the
time and not the arithmetic. Here the weights of all clients are the rows of a matrix [n, P], and one step moves them all. It
evaluates the very loss that a notebook exports under `torch.vmap`; the sum over the clients has in each row the gradient of
one client, as no loss reads another's row. What a step reads lies where it stays, so that CUDA can record it as a graph.
"""

import gc
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.sgd import sgd
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map, tree_map_only

from fednb.federation import Client, Federation, Message, Phase, State, take_steps
from fednb.models import seed_dropout

# Networks with more weights go one at a time, by the same recording: a step of ResNet-18 (11 million) keeps a GPU busy for
# longer than its launches take, and ten times its activations may not fit. The papers' small networks have some 100,000.
LARGE = 1_000_000
WARM_UP = 3  # steps before a recording: libraries choose their kernels and allocate what they need
KEPT = 16  # recordings at most: a learning rate that falls from round to round makes one in each
Asked = tuple[Federation, Client, Message, int]  # who is to train, what it received, and the round


class Batched:
    """Train the clients of a round together: ``Federation(..., train=Batched())``.

    Clients go together whose networks, trained parameters, settings of SGD and ``given`` have the same shape. What is not
    plain SGD, such as the optimiser with a hook of NIID-Bench's SCAFFOLD, goes client by client and step by step.
    """

    def __init__(self) -> None:
        self.stacks: dict[Hashable, Stack] = {}

    def __call__(
        self, fed: Federation, clients: Sequence[Client], received: Sequence[Message], t: int
    ) -> list[Message]:
        return self.train([(fed, *pair, t) for pair in zip(clients, received, strict=True)])

    def train(self, asked: Sequence[Asked]) -> list[Message]:
        """The upload of each client. They may be of several federations that differ in nothing but the seed."""
        with ExitStack() as lent:
            for federation, client, *_ in asked:
                lent.enter_context(federation.lend_model(client))
            works = [Work(*one) for one in asked]
            for number in range(max(len(work.plan) for work in works)):
                groups: dict[Hashable, list[Work]] = {}
                for place, work in enumerate(works):
                    if number < len(work.plan) and work.prepare(work.plan[number]):
                        large = (
                            sum(parameter.numel() for parameter in work.trained.values()) > LARGE
                        )
                        groups.setdefault((work.kind, place if large else None), []).append(work)
                for (kind, _), group in groups.items():
                    self._stack(kind, group).train(group)
            return [work.federation.method.upload(work.client, work.given) for work in works]

    def _stack(self, kind: Hashable, works: list["Work"]) -> "Stack":
        epochs = max(phase.epochs for work in works for phase in work.plan)
        room = epochs * max(
            client.num_samples for work in works for client in work.federation.clients
        )
        axes = tree_map(_axis, *(work.given for work in works))
        key = kind, len(works), room, repr(axes)
        if key not in self.stacks:
            if len(self.stacks) >= KEPT:
                if works[0].federation.images.is_cuda:
                    torch.cuda.synchronize()  # replays that are under way still need their memory
                self.stacks.clear()
            self.stacks[key] = Stack(works, axes, room)
        return self.stacks[key]


class Together(Batched):
    """Federations that differ in the seed alone, ``num`` of them: each runs in a thread of its own, and all train as one."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self._expected, self._lock = num, threading.Lock()
        self._waiting: list[tuple[Sequence[Asked], Future[list[Message]]]] = []

    def train(self, asked: Sequence[Asked]) -> list[Message]:
        """The uploads of one federation, once all of them have asked."""
        uploads: Future[list[Message]] = Future()
        with self._lock:
            self._waiting.append((asked, uploads))
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
        waiting, self._waiting = self._waiting, []
        try:
            made = iter(super().train([one for asked, _ in waiting for one in asked]))
            for asked, uploads in waiting:
                uploads.set_result([next(made) for _ in asked])
        except Exception as error:  # all of them must hear of it
            for _, uploads in waiting:
                uploads.set_exception(error)


class Work:
    """What a client does in a round, as in `Federation.local_update`, up to the steps of a phase."""

    def __init__(self, federation: Federation, client: Client, received: Message, t: int) -> None:
        self.federation, self.client = federation, client
        self.given, self.rng = federation.begin(client, received, t)
        self.plan = federation.method.plan(client, t)

    def prepare(self, phase: Phase) -> bool:
        """Draw the batches of a phase; False if there are none, or none for a `Stack`: then the steps are made here."""
        federation, client = self.federation, self.client
        federation.freeze(client.model, phase)
        self.trained = {
            name: value for name, value in client.model.named_parameters() if value.requires_grad
        }
        optimizer = federation.method.optimizer(client, list(self.trained.values()), self.given)
        if not is_plain(optimizer):
            take_steps(federation, client, phase, self.given, self.rng)
            return False
        self.sgd = {
            n: value
            for n, value in optimizer.param_groups[0].items()
            if n not in ("params", "differentiable")
        }
        # what must stay the same for a step to be replayed: all but the numbers in tensors
        given = tree_map(
            lambda v: (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else v, self.given
        )
        self.kind = client.architecture, tuple(self.trained), repr(self.sgd), repr(given)
        self.batches = list(federation.steps(client, phase, self.rng))
        client.steps += len(self.batches)
        return bool(self.batches)


def is_plain(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step is the same in every row and round: SGD without hooks, nor dampening, which spares the first step."""
    hooks, groups = (
        optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks,
        optimizer.param_groups,
    )
    return (
        type(optimizer) is torch.optim.SGD
        and not hooks
        and len(groups) == 1
        and not groups[0]["dampening"]
    )


def _axis(*values: Any) -> int | None:
    """0 for tensors to be stacked; None where all clients have the very same one, or what is no tensor and equal anyway."""
    found = {
        (value.data_ptr(), value.shape, value.stride())
        for value in values
        if isinstance(value, Tensor)
    }
    return 0 if len(found) > 1 else None


class Stack:
    """Clients that train together, of works of one kind: row i of every tensor is the i-th one's.

    ``axes`` is a tree like ``given``, with 0 where it is stacked and None where all clients share it; ``room`` is how many
    images a client sees at most in a phase, all epochs together.
    """

    def __init__(self, works: Sequence[Work], axes: Any, room: int) -> None:
        first, n, federation = works[0], len(works), works[0].federation
        device = federation.images.device
        zeros = partial(torch.zeros, device=device)
        self.federation, self.sgd, self.axes = federation, first.sgd, axes
        self.loss = _Loss(
            federation.method, federation.network(first.client.architecture)
        )  # its own weights play no part
        federation.freeze(self.loss.model, Phase(1, first.trained.__contains__))
        self.shapes = {name: value.shape for name, value in first.trained.items()}
        self.weights, self.momentum = zeros(2, n, sum(map(math.prod, self.shapes.values())))
        state = first.client.model.state_dict()
        self.rest = {
            name: zeros(n, *v.shape, dtype=v.dtype)
            for name, v in state.items()
            if name not in self.shapes
        }
        self.given = tree_map_only(
            Tensor, lambda value: value.detach().to(device, copy=True), self._given(works)
        )
        self.index, self.draws = (
            zeros(n, room, dtype=torch.long),
            zeros(n, room, 4, dtype=torch.float32),
        )
        self.place, self.who = zeros(2, n, dtype=torch.long)  # of next batches; who steps
        drawn, (index, _) = [], first.batches[0]
        seed_dropout(
            self.loss,
            lambda shape: drawn.append(math.prod(shape)) or torch.ones(shape, device=device),
        )
        with torch.no_grad():  # to see which terms the loss has, and how many numbers dropout draws
            terms = self.loss(federation.inputs(index), federation.labels[index], first.given)
        self.losses = {name: zeros(n) for name in terms}
        self.masks = zeros(
            n, room, sum(drawn) // len(index)
        )  # what dropout draws for an image in a step
        self.pool: Any = None
        self._replays: dict[tuple[int, int, bool], Callable[[], None]] = {}

    def _given(self, works: Sequence[Work]) -> Any:
        given = (work.given for work in works)
        return tree_map(
            lambda axis, *values: values[0] if axis is None else torch.stack(values),
            self.axes,
            *given,
        )

    def train(self, works: Sequence[Work]) -> None:
        """Make all steps of a phase; the clients' networks and sums of losses hold the result."""
        works = sorted(
            works, key=lambda work: -len(work.batches)
        )  # those with a batch left are then the first, as a rule
        steps = _schedule([[len(index) for index, _ in work.batches] for work in works])
        kinds = [(len(who), size, who == list(range(len(who)))) for who, size in steps]
        for kind in set(kinds) - self._replays.keys():
            self._replays[kind] = self._record(*kind)
        given = self._given(works)  # filled in only now, as a recording makes steps
        tree_map(
            lambda kept, value: kept.copy_(value) if isinstance(kept, Tensor) else None,
            self.given,
            given,
        )
        for i, work in enumerate(works):
            state = work.client.model.state_dict()
            torch.cat([state[name].reshape(-1) for name in self.shapes], out=self.weights[i])
            for name, values in self.rest.items():
                values[i] = state[name]
            index, draws = map(torch.cat, zip(*work.batches, strict=True))
            self.index[i, : len(index)], self.draws[i, : len(index)] = index, draws
            self.masks[i, : len(index)].uniform_(generator=work.client.masks)
        for tensor in (self.momentum, self.place, *self.losses.values()):
            tensor.zero_()  # the first step then makes the momentum the gradient, as for a new optimiser
        order = torch.tensor([one for who, _ in steps for one in who]).to(self.who.device)
        for kind, who in zip(kinds, order.split([k for k, _, _ in kinds]), strict=True):
            if not kind[-1]:
                self.who[: len(who)] = who
            self._replays[kind]()
        for i, work in enumerate(works):
            rest, losses = (
                {name: values[i] for name, values in self.rest.items()},
                work.client.losses,
            )
            work.client.model.load_state_dict(rest | self._named(self.weights[i]))
            losses |= {name: losses.get(name, 0) + sums[i] for name, sums in self.losses.items()}

    def _step(self, k: int, size: int, first: bool) -> None:
        """A step of the first ``k`` clients, or of the first ``k`` that ``who`` names, on a batch of this size each."""
        device = self.who.device
        who = slice(k) if first else self.who[:k]  # views of the first, copies of others
        ids = torch.arange(k, device=device) if first else who
        at = ids[:, None], self.place[who, None] + torch.arange(size, device=device)
        index = self.index[at]
        x = self.federation.inputs(index.flatten(), self.draws[at].flatten(0, 1)).unflatten(
            0, (k, size)
        )
        rest = {name: values[who] for name, values in self.rest.items()}
        w, momentum = self.weights[who].detach().requires_grad_(), self.momentum[who]
        given = tree_map(
            lambda axis, value: value if axis is None else value[who], self.axes, self.given
        )
        with _Layers() if len(self.weights) > 1 else nullcontext():
            loss = torch.vmap(self._terms, (0, 0, 0, 0, 0, self.axes))
            terms = loss(
                w, rest, self.masks[at].flatten(1), x, self.federation.labels[index], given
            )
        (gradient,) = torch.autograd.grad(sum(value.sum() for value in terms.values()), w)
        sgd([w.detach()], [gradient.contiguous()], [momentum], **self.sgd)
        if not first:
            self.weights[who], self.momentum[who] = w.detach(), momentum
            for name, values in self.rest.items():
                values[who] = rest[name]
        self.place.index_add_(0, ids, torch.full_like(ids, size))
        for name, value in terms.items():
            self.losses[name].index_add_(0, ids, value.detach())

    def _named(self, w: Tensor) -> State:
        pieces = w.split([math.prod(shape) for shape in self.shapes.values()])
        return {
            name: piece.view(shape)
            for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True)
        }

    def _terms(self, w: Tensor, rest: State, masks: Tensor, *batch: Any) -> dict[str, Tensor]:
        """The loss of one client on x, y and what it is given, for its row of weights."""

        def draw(shape: Sequence[int]) -> Tensor:
            nonlocal masks
            numbers, masks = masks[: math.prod(shape)], masks[math.prod(shape) :]
            return numbers.view(shape)

        seed_dropout(self.loss, draw)
        state = {f"model.{name}": value for name, value in (rest | self._named(w)).items()}
        return functional_call(self.loss, state, batch)

    def _record(self, k: int, size: int, first: bool) -> Callable[[], None]:
        step = partial(self._step, k, size, first)
        if self.who.device.type != "cuda":
            return step
        beside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP):
                self.place.zero_()
                step()
        gc.disable()  # a collection may free an older graph: that spoils the one being recorded
        try:
            with torch.cuda.graph(graph, self.pool, beside):
                step()
        finally:
            gc.enable()
        self.pool = (
            graph.pool()
        )  # recordings are never replayed at once, so they share their memory
        return graph.replay


def _schedule(sizes: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Who steps when: of each step the clients and the size of their batches; each client's batches stay in order."""
    steps = []
    for batch in zip_longest(*sizes, fillvalue=0):  # the next of each client
        for size in filter(None, dict.fromkeys(batch)):
            steps.append(([i for i, own in enumerate(batch) if own == size], size))
    return steps


class _Loss(nn.Module):
    """A method's loss as a module, so that `functional_call` can give its network other weights."""

    def __init__(self, method: Any, model: nn.Module) -> None:
        super().__init__()
        self.method, self.model = method, model

    def forward(self, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        return self.method.loss(self.model, x, y, given)


class _Layers(TorchFunctionMode):
    """Layers as vmap makes few products of them: a convolution would get a group for each network, slow on a GPU."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if function is F.linear:  # as addmm, vmap multiplies by factors of 1
            x, weight, bias = args
            return x @ weight.mT if bias is None else x @ weight.mT + bias
        if function is not F.conv2d or args[6] != 1:
            return function(*args, **(kwargs or {}))
        x, weight, bias, stride, padding, dilation, _ = args
        patches = F.unfold(
            x, weight.shape[2:], dilation, padding, stride
        )  # [B, C rows columns, places]
        y = weight.flatten(1) @ patches.transpose(0, 1).flatten(1)  # [out, B places]
        y = y if bias is None else y + bias[:, None]
        height = (x.shape[2] + 2 * padding[0] - dilation[0] * (weight.shape[2] - 1) - 1) // stride[
            0
        ] + 1
        return y.view(len(weight), len(x), height, -1).transpose(0, 1)
