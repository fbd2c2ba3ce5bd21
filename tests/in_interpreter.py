"""What `test_kernels` calls in a process where Triton's kernels are interpreted on the CPU."""

import contextlib
import io
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb import models, papers
from fednb.data import Augmentation, Dataset
from fednb.federation import Federation, Training
from fednb.gpu import convolution, stacked

# of a program: the interpreter takes as long for many as for few
convolution.LANES = 512


def plain(pooled, stride, padding):
    """The layer as torch makes it."""

    def layer(x, w, bias):
        y = F.conv2d(x, w, bias, stride, padding)
        return F.relu(F.max_pool2d(y, 2)) if pooled else y

    return layer


def convolution_errors(
    *,
    images,
    out,
    pooled,
    kernel=(3, 3),
    stride=(1, 1),
    padding=(0, 0),
    bias=True,
    clients=2,
    batch=3,
    shared="",
    channels_last=False,
    dtype="float32",
):
    """How far the result and each gradient are from float64's, as a part of the largest number."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (batch, *images), "w": (out, images[0], *kernel), "b": (out,)}
    if not bias:
        del shapes["b"]
    dims = tuple(None if name in shared else 0 for name in shapes)
    numbers = []
    for shape, dim in zip(shapes.values(), dims, strict=True):
        shape = shape if dim is None else (clients, *shape)
        numbers.append(torch.randn(shape, generator=generator).to(getattr(torch, dtype)))
    if channels_last:
        numbers[0] = numbers[0].movedim(2, -1).contiguous().movedim(-1, 2)
    results = []
    options = convolution.Layer(stride, padding, pooled)
    dy = None
    for layer, like in (
        (partial(convolution.convolution, layer=options), torch.Tensor.clone),
        (plain(pooled, stride, padding), torch.Tensor.double),
    ):
        given = [like(value).requires_grad_() for value in numbers]
        padded = given if bias else [*given, None]
        y = torch.vmap(layer, dims if bias else (*dims, None))(*padded)
        if dy is None:
            dy = torch.randn(y.shape, generator=generator)
        results.append([y, *torch.autograd.grad((y * dy.to(y.dtype)).sum(), given)])
    names = ("y", "x", "w", "bias")
    errors = {}
    for name, ours, exact in zip(names, *results, strict=False):
        errors[name] = float(
            (ours.double() - exact).detach().abs().max() / exact.detach().abs().max()
        )
    return errors


def guarded(value: Tensor) -> tuple[Tensor, Tensor]:
    """The same numbers in the midst of NaN, and all of that memory."""
    memory = torch.full((value.numel() + 4096,), float("nan"))
    view = memory[2048 : 2048 + value.numel()].view(value.shape)
    view.copy_(value)
    return view, memory


def stays_inside(pooled):
    """Do kernels read and write nothing beside their numbers? There is NaN all around."""
    x, x_memory = guarded(torch.randn(2, 3, 3, 9, 7))
    w, w_memory = guarded(torch.randn(2, 5, 3, 3, 2))
    bias, _ = guarded(torch.randn(2, 5))
    layer = convolution.Layer((1, 1), (1, 1), pooled)
    new_empty, memories = torch.Tensor.new_empty, []

    def in_nan(self, *shape, **given):
        shape = shape[0] if isinstance(shape[0], tuple | torch.Size) else shape
        view, memory = guarded(new_empty(self, *shape, **given))
        memories.append((memory, view.numel()))
        return view

    torch.Tensor.new_empty = in_nan
    try:
        given = [value.requires_grad_() for value in (x.detach(), w.detach(), bias.detach())]
        y = torch.vmap(partial(convolution.convolution, layer=layer))(*given)
        dy, _ = guarded(torch.randn(y.shape))
        gradients = torch.autograd.grad(y, given, dy)
    finally:
        torch.Tensor.new_empty = new_empty
    finite = all(value.isfinite().all() for value in (y, *gradients))
    memories += [(x_memory, x.numel()), (w_memory, w.numel())]
    untouched = all(int(m.isnan().sum()) == len(m) - used for m, used in memories)
    return finite and untouched and len(memories) > 4


def federation(method, train, network="simple-cnn"):
    """Three clients of unequal sizes with random images."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (24, 3, 32, 32), np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, 24))
    dataset = Dataset(
        name="noise",
        images=pixels[:20],
        labels=labels[:20],
        test_images=pixels[20:],
        test_labels=labels[20:],
        classes=tuple("abcdefghij"),
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        augmentation=Augmentation(pad=2, flip=True),
        fingerprint="0" * 16,
        source="made up",
    )
    training = Training(3, 1, 4, lr=0.05, momentum=0.9, weight_decay=1e-3)
    parts = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 20)]
    build_model = partial(models.build, network, 10)
    return Federation(method, dataset, parts, build_model, training, workers=1, train=train)


def ends(fed, rounds):
    """The weights of a federation after so many rounds, as one vector."""
    for _ in range(rounds):
        assert fed.run_round()["finite"]
    return torch.cat([value.flatten() for value in fed.server["model"].values()])


def step_error(name):
    """How far rounds by kernels end from the plain loop's, and how many layers are kernels."""
    method = papers.methods()[name]()
    used = []
    apply = convolution.convolution

    def counted(*args):
        used.append(args)
        return apply(*args)

    convolution.convolution = counted
    try:
        ours = ends(federation(method, stacked.StackedTrainer(check=True, kernels=True)), 2)
    finally:
        convolution.convolution = apply
    plain_fed = federation(method, None)
    start = torch.cat([value.flatten() for value in plain_fed.server["model"].values()])
    expected = ends(plain_fed, 2)
    return float((ours - expected).norm() / (expected - start).norm()), len(used)


def with_failing_kernels():
    """What is told where no kernel can be compiled, and whether all ends as by products."""
    multiply = convolution.multiply

    def fail(*_):
        raise ValueError("no such instruction")

    convolution.multiply = fail
    try:
        method = papers.methods()["FedAvg"]()
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            ours = ends(federation(method, stacked.StackedTrainer(check=True, kernels=True)), 2)
    finally:
        convolution.multiply = multiply
    by_products = ends(federation(method, stacked.StackedTrainer(check=True, kernels=False)), 2)
    return told.getvalue().splitlines(), bool((ours == by_products).all())
