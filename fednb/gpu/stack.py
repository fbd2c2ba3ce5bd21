"""Clients that take each SGD step together: their weights are the rows of a matrix.

What a step reads lies where it stays, so that CUDA can record the step as a graph and replay it.
"""

import gc
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.sgd import sgd
from torch.utils._pytree import tree_map, tree_map_only

from fednb.batches import Batch
from fednb.client import Client, Phase
from fednb.federation import Federation, add_losses, sgd_steps, total_loss
from fednb.gpu.layers import MatrixLayers
from fednb.messages import Message, State
from fednb.method import FedAvg
from fednb.models import Net, seed_dropout

WARM_UP = 3  # steps before a recording: libraries choose their kernels and allocate what they need
# How far, of the length of a client's step, a step of all clients may be from the plain loop's.
# Rounding is far below it (1e-3 where a ReLU or the maximum of a pool turns over), a lost term or
# another client's batch far above.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-2}

# Clients of one kind can share a stack: method, architecture, what is trained, SGD's options,
# shapes of what is given.
Kind = tuple[str, Hashable, tuple[str, ...], str, str]


class WrongStep(RuntimeError):
    """A step of all clients at once that differs from the plain loop's."""


class StepShape(NamedTuple):
    """What distinguishes one recording of a step from another."""

    num_clients: int
    batch_size: int
    are_first: bool  # the clients are the first rows, in order: then a step reads views, not copies


class LossModule(nn.Module):
    """A method's loss as a module, so that `functional_call` can give its network other weights."""

    def __init__(self, method: FedAvg, model: Net) -> None:
        super().__init__()
        self.method = method
        self.model = model

    def forward(self, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        return self.method.loss(self.model, x, y, given)


class ClientRound:
    """What a client does in a round, as `Federation.local_update`, up to the steps of a phase."""

    def __init__(self, federation: Federation, client: Client, received: Message, t: int) -> None:
        self.federation = federation
        self.client = client
        self.given = federation.start_round(client, received, t)
        self.rng = federation.batch_generator(client, t)
        self.plan = federation.method.plan(client, t)
        self.batches: list[Batch] = []
        self.trained: dict[str, torch.Size] = {}  # the parameters of the phase
        self.sgd_options: dict[str, Any] = {}  # of `torch.optim.sgd.sgd`
        self.kind: Kind | None = None  # None: there is nothing to stack

    def draw_batches(self, phase: Phase) -> None:
        """Set the model for a phase, draw its batches, and find the kind of its steps."""
        client = self.client
        client.set_trainable(phase)
        self.batches = list(
            self.federation.images.steps(client.indices, client.training, phase.epochs, self.rng)
        )
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
        """How many numbers are trained."""
        return sum(shape.numel() for shape in self.trained.values())


class StackedClients:
    """Clients of one kind, which train together: row i of every tensor is the i-th one's.

    Parameters
    ----------
    rows: the clients in a phase, of federations that differ in nothing but the seed; later calls of
        `train` bring others of the same kind.
    capacity: how many images a client sees at most in a phase, all epochs together.
    kernels: let Triton's kernels make the layers that they can make.
    """

    def __init__(self, rows: Sequence[ClientRound], capacity: int, kernels: bool = False) -> None:
        n = len(rows)
        first = rows[0]
        self.federation = first.federation  # whose images and loss all share
        self.shapes = first.trained
        self.sgd_options = first.sgd_options
        self.axes = stacked_axes([row.given for row in rows])
        self.device = self.federation.images.device
        self.loss = self._loss_module(first)
        # layers of one client alone are best as they are
        self.layers: Callable[[], Any] = nullcontext if n == 1 else MatrixLayers
        self.read_batch: Callable | None = None
        if kernels and n > 1:
            self._take_kernels()
        state = first.client.model.state_dict()
        dtype = state[next(iter(self.shapes))].dtype
        zeros = partial(torch.zeros, device=self.device)
        self.weights = zeros(n, first.num_weights, dtype=dtype)
        self.momentum = zeros(n, first.num_weights, dtype=dtype)
        # what is not trained: frozen layers and buffers
        self.rest = {
            name: zeros(n, *value.shape, dtype=value.dtype)
            for name, value in state.items()
            if name not in self.shapes
        }
        stacked = self._stack_given(rows)
        self.given = tree_map_only(
            Tensor, lambda value: value.detach().to(self.device, copy=True), stacked
        )
        # the images of all batches, one after the other
        self.index = zeros(n, capacity, dtype=torch.long)
        self.draws = zeros(n, capacity, 4, dtype=torch.float32)  # for their augmentation
        self.position = zeros(n, dtype=torch.long)  # where the next batch of each begins
        self.stepping = zeros(n, dtype=torch.long)  # who takes a step, where it is not the first
        self.everyone = torch.arange(n, device=self.device)
        self.ones = torch.ones(n, dtype=dtype, device=self.device)
        self.ones_of_position = torch.ones(n, dtype=torch.long, device=self.device)
        terms, num_masks = self._try_loss(first)
        self.losses = {name: zeros(n, dtype=value.dtype) for name, value in terms.items()}
        # what dropout draws for an image: numbers of torch's default type, as in the plain loop
        self.masks = zeros(n, capacity, num_masks)
        self._pool: Any = None
        self._replays: dict[StepShape, Callable[[], None]] = {}

    def _loss_module(self, first: ClientRound) -> LossModule:
        """The loss with a network of its own, whose weights play no part."""
        model = self.federation.new_network(first.client.architecture)
        for module, like in zip(model.modules(), first.client.model.modules(), strict=True):
            module.training = like.training
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in self.shapes)
        return LossModule(self.federation.method, model)

    def _take_kernels(self) -> None:
        """Let kernels make layers and read batches, where they can."""
        from fednb.gpu import dense, fused  # they need Triton

        self.layers = fused.KernelLayers
        fused.fuse(self.loss.model)
        if dense.reads(self.federation.images):
            self.read_batch = dense.read_batch

    @torch.no_grad()
    def _try_loss(self, first: ClientRound) -> tuple[dict[str, Tensor], int]:
        """Which terms the loss has, and how many numbers dropout draws for each image."""
        num_drawn = 0

        def count_draws(shape: Sequence[int]) -> Tensor:
            nonlocal num_drawn
            num_drawn += math.prod(shape)
            return torch.ones(shape, device=self.device)  # keeps everything

        seed_dropout(self.loss, count_draws)
        index, _ = first.batches[0]
        fed = self.federation
        terms = self.loss(fed.images.inputs(index), fed.images.labels[index], first.given)
        return terms, num_drawn // len(index)

    def _stack_given(self, rows: Sequence[ClientRound]) -> Any:
        def stack(axis: int | None, *values: Any) -> Any:
            return values[0] if axis is None else torch.stack(values)

        return tree_map(stack, self.axes, *(row.given for row in rows))

    def train(self, rows: Sequence[ClientRound], check: bool = False) -> None:
        """Make all steps of a phase; the clients hold the result, as after `sgd_steps`.

        With ``check`` the first step of each new shape is compared with the plain loop's; where it
        differs, that is a `WrongStep`.
        """
        # those with a batch left are then the first, as a rule
        rows = sorted(rows, key=lambda row: -len(row.batches))
        schedule = schedule_steps([[len(index) for index, _ in row.batches] for row in rows])
        shapes = [StepShape(len(who), size, who == list(range(len(who)))) for who, size in schedule]
        new = set(shapes) - self._replays.keys()
        for shape in new:
            self._replays[shape] = self._record(shape)
        self._fill(rows)
        order = torch.tensor([row for who, _ in schedule for row in who]).to(self.device)
        stepping = order.split([shape.num_clients for shape in shapes])
        for shape, who in zip(shapes, stepping, strict=True):
            if not shape.are_first:
                self.stepping[: len(who)] = who
            if check and shape in new:
                new.discard(shape)
                self._check(shape, who.tolist(), rows)
            else:
                self._replays[shape]()
        for i, row in enumerate(rows):
            rest = {name: values[i] for name, values in self.rest.items()}
            row.client.model.load_state_dict(rest | self._named(self.weights[i]))
            row.client.steps += len(row.batches)
            add_losses(row.client, {name: sums[i].clone() for name, sums in self.losses.items()})

    def _fill(self, rows: Sequence[ClientRound]) -> None:
        """Copy what a phase begins with into what a step reads; recordings, made before, change it."""

        def copy_into(kept: Any, value: Any) -> None:
            if isinstance(kept, Tensor):
                kept.copy_(value)

        tree_map(copy_into, self.given, self._stack_given(rows))
        for i, row in enumerate(rows):
            state = row.client.model.state_dict()
            torch.cat([state[name].reshape(-1) for name in self.shapes], out=self.weights[i])
            for name, values in self.rest.items():
                values[i] = state[name]
            index, draws = (torch.cat(parts) for parts in zip(*row.batches, strict=True))
            self.index[i, : len(index)] = index
            self.draws[i, : len(index)] = draws
            self.masks[i, : len(index)].uniform_(generator=row.client.dropout_generator)
        # the first step makes the momentum the gradient, as for a new optimiser
        for tensor in (self.momentum, self.position, *self.losses.values()):
            tensor.zero_()

    def _step(self, shape: StepShape) -> None:
        """A step of the first clients, or those in ``stepping``, on a batch of this size each."""
        k, size, are_first = shape
        who = slice(k) if are_first else self.stepping[:k]  # views of the first, copies of others
        rows = self.everyone[:k] if are_first else self.stepping[:k]
        x, y, masks = self._batch(rows, size)
        rest = {name: values[who] for name, values in self.rest.items()}
        weights = self.weights[who].detach().requires_grad_()
        momentum = self.momentum[who]
        given = tree_map(
            lambda axis, value: value if axis is None else value[who], self.axes, self.given
        )
        with self.layers():
            loss = torch.vmap(self._terms, (0, 0, 0, 0, 0, self.axes))
            terms = loss(weights, rest, masks, x, y, given)
        # no loss reads another client's row: each row of the sum's gradient is the gradient of one
        # client
        trained = [value for value in terms.values() if value.requires_grad]
        (gradient,) = torch.autograd.grad(
            trained, weights, [self.ones[:k].to(value.dtype) for value in trained]
        )
        sgd([weights.detach()], [gradient.contiguous()], [momentum], **self.sgd_options)
        if not are_first:
            self.weights[who] = weights.detach()
            self.momentum[who] = momentum
            for name, values in self.rest.items():
                values[who] = rest[name]
        self.position.index_add_(0, rows, self.ones_of_position[:k], alpha=size)
        for name, value in terms.items():
            self.losses[name].index_add_(0, rows, value.detach())

    def _batch(self, rows: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next batch of these rows [k]: x [k, B, C, H, W], y [k, B], numbers for dropout."""
        images = self.federation.images
        masks = self.masks[: len(rows), 0]
        if self.masks.shape[2] or self.read_batch is None:
            columns = torch.arange(size, device=self.device)
            batch = rows[:, None], self.position[rows][:, None] + columns
            masks = self.masks[batch].flatten(1)
        if self.read_batch is not None:
            x, y = self.read_batch(images, self.index, self.draws, self.position, rows, size)
            return x, y, masks
        index = self.index[batch]
        x = images.inputs(index.flatten(), self.draws[batch].flatten(0, 1))
        return x.unflatten(0, (len(rows), size)), images.labels[index], masks

    def _named(self, weights: Tensor) -> State:
        """One client's row of weights [P] as parameters by name."""
        pieces = weights.split([shape.numel() for shape in self.shapes.values()])
        named = zip(pieces, self.shapes.items(), strict=True)
        return {name: piece.view(shape) for piece, (name, shape) in named}

    def _terms(self, weights: Tensor, rest: State, masks: Tensor, *batch: Any) -> dict[str, Tensor]:
        """The loss terms of one client on x, y and what it is given, for its row of weights."""

        def draw(shape: Sequence[int]) -> Tensor:
            nonlocal masks
            numbers, masks = masks[: math.prod(shape)], masks[math.prod(shape) :]
            return numbers.view(shape)

        seed_dropout(self.loss, draw)
        state = {f"model.{name}": value for name, value in (rest | self._named(weights)).items()}
        return functional_call(self.loss, state, batch)

    def _record(self, shape: StepShape) -> Callable[[], None]:
        """What makes a step of this shape: on CUDA a recording's replay, else the step itself."""
        step = partial(self._step, shape)
        if self.device.type != "cuda":
            return step
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.position.zero_()
                step()
        gc.disable()  # a collection may free an older graph: that spoils the one being recorded
        try:
            with torch.cuda.graph(graph, self._pool, stream):
                step()
        finally:
            gc.enable()
        # recordings are never replayed at once, so they share their memory
        self._pool = graph.pool()
        return graph.replay

    def _check(self, shape: StepShape, who: list[int], rows: Sequence[ClientRound]) -> None:
        """Make a step, and compare it with the plain loop's from the same state."""
        before = self.weights.clone()
        plain = {i: self._plain_step(i, shape.batch_size, rows[i]) for i in who}
        self._replays[shape]()
        for i, expected in plain.items():
            length = float((expected - before[i]).norm())
            error = float((self.weights[i] - expected).norm())
            if not error <= TOLERANCE[self.weights.dtype] * length + 1e-12 and math.isfinite(
                length
            ):
                method = type(self.federation.method).__name__
                raise WrongStep(
                    f"{method}: the step of all clients at once moves client {rows[i].client.id} "
                    f"otherwise than a step of its own, by {error / max(length, 1e-12):.1%} of that "
                    "step. Its loss must read nothing but its arguments, and have a gradient where "
                    "a round begins; or train step by step, with train=None."
                )

    def _plain_step(self, i: int, size: int, row: ClientRound) -> Tensor:
        """Client i's weights [P] after its next step, made alone with the layers as they are."""
        fed = self.federation
        begin = int(self.position[i])
        images = slice(begin, begin + size)
        index = self.index[i, images]
        weights = self.weights[i].clone().requires_grad_()
        momentum = self.momentum[i].clone()
        rest = {name: values[i].clone() for name, values in self.rest.items()}
        x = fed.images.inputs(index, self.draws[i, images])
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            masks = self.masks[i, images].flatten()
            terms = self._terms(weights, rest, masks, x, fed.images.labels[index], row.given)
            (gradient,) = torch.autograd.grad(total_loss(terms), weights)
        sgd([weights.detach()], [gradient.contiguous()], [momentum], **self.sgd_options)
        return weights.detach()


def stacked_axes(given: Sequence[Any]) -> Any:
    """Return a tree like what each client was given: 0 for tensors to stack, None for shared ones.

    Clients share a tensor if all have the very same one, and what is no tensor, which is equal in
    clients of one kind.
    """

    def axis(*values: Any) -> int | None:
        tensors = [value for value in values if isinstance(value, Tensor)]
        different = {(value.data_ptr(), value.shape, value.stride()) for value in tensors}
        return 0 if len(different) > 1 else None

    return tree_map(axis, *given)


def schedule_steps(sizes: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """List the clients and the batch size of each step; a client's batches stay in order."""
    steps = []
    for next_sizes in zip_longest(*sizes, fillvalue=0):  # of each client; 0: it has no batch left
        for size in dict.fromkeys(next_sizes):
            if size:
                who = [i for i, own_size in enumerate(next_sizes) if own_size == size]
                steps.append((who, size))
    return steps


def is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether all steps are alike: SGD without hooks or dampening, which spares the first."""
    has_hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if type(optimizer) is not torch.optim.SGD or has_hooks or len(optimizer.param_groups) > 1:
        return False
    return not optimizer.param_groups[0]["dampening"]


def _shape_or_value(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value
