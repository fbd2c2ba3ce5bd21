"""What `test_kernels` calls in a process where Triton's kernels are interpreted on the CPU."""

import contextlib
import io
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from small import noise
from torch import Tensor, nn

from fednb import augment, models, papers, seeds
from fednb.data import Augmentation
from fednb.federation import Federation, Training
from fednb.gpu import convolution, dense, stacked

# The interpreter takes as long for many pixels as for few, and as long for each sum.
convolution.LANES = 512
convolution.SUMS = 50


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
):
    """How far the result and the gradients of x, w and bias are from float64's: `largest_errors`."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (batch, *images), "w": (out, images[0], *kernel), "b": (out,)}
    if not bias:
        del shapes["b"]
    dims = tuple(None if name in shared else 0 for name in shapes)
    numbers = []
    for shape, dim in zip(shapes.values(), dims, strict=True):
        shape = shape if dim is None else (clients, *shape)
        numbers.append(torch.randn(shape, generator=generator))
    if channels_last:
        numbers[0] = numbers[0].movedim(2, -1).contiguous().movedim(-1, 2)
    options = convolution.Layer(stride, padding, pooled)
    ours = partial(convolution.convolution, layer=options)
    if not bias:
        numbers.append(None)
        dims = (*dims, None)
    return largest_errors(ours, plain(pooled, stride, padding), numbers, dims)


def largest_errors(ours, exact, numbers, dims):
    """How far a function of all clients is from another in float64, and so is each of its gradients.

    As a part of the largest number; first the result, then gradients, in the order of ``numbers``.
    """
    results = []
    dy = None
    for function, like in ((ours, torch.Tensor.clone), (exact, in_float64)):
        given = [None if value is None else like(value) for value in numbers]
        trained = [v for v in given if v is not None and v.is_floating_point()]
        for value in trained:
            value.requires_grad_()
        y = torch.vmap(function, dims)(*given)
        if dy is None:
            dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        results.append([y, *torch.autograd.grad((y * dy.to(y.dtype)).sum(), trained)])
    return [
        float((one.double() - other).detach().abs().max() / other.detach().abs().max())
        for one, other in zip(*results, strict=True)
    ]


def in_float64(value):
    """The same numbers in float64; whole numbers as they are."""
    return value.double() if value.is_floating_point() else value


def linear_errors(*, images, width, out, bias=True, relu=False, shared=""):
    """As `convolution_errors`, of a linear layer of two clients."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (images, width), "w": (out, width), "b": (out,)}
    numbers, dims = [], []
    for name, shape in shapes.items():
        dims.append(None if name in shared or (name == "b" and not bias) else 0)
        shape = shape if dims[-1] is None else (2, *shape)
        numbers.append(torch.randn(shape, generator=generator))
    if not bias:
        numbers[2] = None

    def ours(x, w, b):
        return dense.linear(x, w, b, relu)

    def exact(x, w, b):
        y = F.linear(x, w, b)
        return F.relu(y) if relu else y

    return largest_errors(ours, exact, numbers, tuple(dims))


def cross_entropy_errors():
    """Of the mean cross entropy of three clients, and of its gradient."""
    generator = torch.Generator().manual_seed(0)
    logits = 10 * torch.randn(3, 7, 10, generator=generator)
    labels = torch.randint(0, 10, (3, 7), generator=generator)
    return largest_errors(dense.cross_entropy, F.cross_entropy, [logits, labels], (0, 0))


def normalise_errors():
    """Of vectors of length 1, one of which is shorter than eps."""
    x = torch.randn(2, 5, 20, generator=torch.Generator().manual_seed(0))
    x[0, 0] *= 1e-6

    def ours(x):
        return dense.normalise(x, 1e-4)

    return largest_errors(ours, partial(F.normalize, dim=-1, eps=1e-4), [x], (0,))


def batch_error():
    """How far a batch that a kernel reads is from `Workspace.inputs`; and whether labels are the same."""
    fed = federation(papers.methods()["FedAvg"](), None, shape=(3, 8, 8))
    index = torch.randint(0, 12, (3, 9))
    draws = augment.draw(27, fed.dataset.augmentation, np.random.default_rng(0)).view(3, 9, 4)
    position, who = torch.tensor([0, 5, 3]), torch.tensor([2, 0])
    x, y = dense.read_batch(fed.images, index, draws, position, who, 4)
    error = 0.0
    for row, begin in enumerate((3, 0)):
        batch = slice(begin, begin + 4)
        chosen = index[who[row], batch]
        expected = fed.images.inputs(chosen, draws[who[row], batch])
        error = max(error, float((x[row] - expected).abs().max()))
        assert (y[row] == fed.images.labels[chosen]).all()
    return error


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


def tiny_network(channels):
    """As the papers' small networks, with few channels."""
    with seeds.torch_seed(0, "initial weights"):
        encoder = nn.Sequential(
            nn.Conv2d(channels, 3, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(3, 4, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4, 8),
            nn.ReLU(),
        )
        head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 6))
        return models.Net(encoder, head, nn.Linear(6, 10))


def federation(method, train, network=None, shape=(1, 8, 8)):
    """Two clients, one with twice as many images as the other."""
    dataset = noise(12, 4, shape, 10, augmentation=Augmentation(pad=2, flip=True))
    training = Training(3, 1, 4, lr=0.05, momentum=0.9, weight_decay=1e-3)
    parts = [np.arange(0, 8), np.arange(8, 12)]
    build_model = partial(tiny_network, shape[0])
    if network:
        build_model = partial(models.build, network, 10, channels=shape[0], side=shape[1])
    return Federation(method, dataset, parts, build_model, training, workers=1, train=train)


def ends(fed, rounds):
    """The weights of a federation after so many rounds, as one vector."""
    for _ in range(rounds):
        assert fed.run_round()["finite"]
    return torch.cat([value.flatten() for value in fed.server["model"].values()])


def step_error(name, rounds):
    """How far rounds by kernels end from the plain loop's, and how many layers are kernels."""
    method = papers.methods()[name]()
    used = []
    multiply = convolution.multiply

    def counted(*args, **options):
        used.append(args)
        multiply(*args, **options)

    convolution.multiply = counted
    try:
        ours = ends(federation(method, stacked.StackedTrainer(check=True, kernels=True)), rounds)
    finally:
        convolution.multiply = multiply
    plain_fed = federation(method, None)
    start = torch.cat([value.flatten() for value in plain_fed.server["model"].values()])
    expected = ends(plain_fed, rounds)
    return float((ours - expected).norm() / (expected - start).norm()), len(used)


def with_failing_kernels():
    """What is told where no kernel can be compiled, and whether all ends as by products."""
    multiply = convolution.multiply

    def fail(*_, **options):
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
