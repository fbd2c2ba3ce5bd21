"""``make bench``: what the federation costs over a bare loop of the same SGD steps, for every method of the notebooks.

The bare loop trains one model on tensors in memory: foreach SGD, no augmentation, no averaging, no evaluation, all cores for
each step, and the method's loss as one writes it without this package. A method that differs from FedAvg on the server or in
what it shares alone has FedAvg's loop. What a method must compute once per round beside its steps, a pass over the images
for prototypes or steps on public images, the loop computes as well. The federated round does all of what the loop leaves
out, and the same number of steps on batches of the same size. The arithmetic alone is the bare loop on one batch again and
again. The three alternate, so that a busy machine disturbs all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb import models, papers, partition
from fednb.data import Augmentation, Dataset
from fednb.experiments import runs
from fednb.federation import FedAvg, Federation, Training

AIM = 1.15  # a federated round takes at most so many times as long as the bare loop
CLIENTS = 10
TEST_IMAGES = 2000

# name: (model, channels, side, images, batch size, local epochs, augmentation). What is done once per round weighs less, the
# longer a round is: the last case has the five epochs of the embedded domains, half of the paper's.
CASES = {
    "simple CNN, batch 64": ("simple-cnn", 3, 32, 10_000, 64, 1, Augmentation(pad=4, pad_mode="reflect", flip=True)),
    "small net, batch 8": ("digits-cnn", 1, 8, 4_000, 8, 1, Augmentation()),
    "MNIST network, batch 8": ("mnist-cnn", 1, 28, 4_000, 8, 1, Augmentation()),
    "domains, 5 epochs": ("digits-cnn", 3, 16, 4_000, 32, 5, Augmentation(pad=2, flip=True)),
}

Build = Callable[[], models.Net]  # a network on the device, with the same weights each time
Loss = Callable[[models.Net, Tensor, Tensor], Tensor]


def prototypes_for(model: models.Net, per_class: int = 1) -> tuple[Tensor, Tensor]:
    """Random prototypes [10 per_class, D] of ten classes, and their labels."""
    weight = model.classifier.weight
    number = 10 * per_class
    return torch.rand(number, weight.shape[1], device=weight.device), torch.arange(number, device=weight.device) % 10


def plain_fedavg(build: Build) -> Loss:
    return lambda model, x, y: F.cross_entropy(model(x).logits, y)


def plain_fedprox(build: Build) -> Loss:
    received = [p.detach().clone() for p in build().parameters()]

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        far = sum((w - old).square().sum() for w, old in zip(model.parameters(), received, strict=True))
        return F.cross_entropy(model(x).logits, y) + 0.005 * far

    return loss


def plain_scaffold(build: Build) -> Loss:
    corrections = [1e-3 * torch.rand_like(p) for p in build().parameters()]

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        linear = sum((w * c).sum() for w, c in zip(model.parameters(), corrections, strict=True))
        return F.cross_entropy(model(x).logits, y) + linear

    return loss


def plain_moon(build: Build) -> Loss:
    """Two networks in eval mode beside the one that is trained."""
    frozen = [build().eval() for _ in range(2)]

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        return F.cross_entropy(logits, y) + between_models(frozen, x, z)

    return loss


def between_models(frozen: Sequence[models.Net], x: Tensor, z: Tensor) -> Tensor:
    with torch.no_grad():
        others = [network(x).representation for network in frozen]
    similarities = torch.stack([F.cosine_similarity(z, other) for other in others], 1) / 0.5
    return F.cross_entropy(similarities, torch.zeros(len(x), dtype=torch.long, device=x.device))


def plain_fedproc(build: Build) -> Loss:
    prototypes, _ = prototypes_for(build())

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        return 0.5 * F.cross_entropy(logits, y) + 0.5 * F.cross_entropy(F.normalize(z) @ F.normalize(prototypes).T, y)

    return loss


def plain_fedssc(build: Build) -> Loss:
    """MOON's two networks, and a prototype of each class."""
    frozen = [build().eval() for _ in range(2)]
    prototypes, _ = prototypes_for(build())

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        between_classes = F.cross_entropy(F.normalize(z) @ F.normalize(prototypes).T / 0.5, y)
        return F.cross_entropy(logits, y) + between_models(frozen, x, z) + between_classes

    return loss


def plain_fedproto(build: Build) -> Loss:
    prototypes, _ = prototypes_for(build())

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        return F.cross_entropy(logits, y) + F.mse_loss(z, prototypes[y])

    return loss


def plain_fpl(build: Build) -> Loss:
    """Three prototypes of each class, and their mean."""
    (prototypes, labels), (means, _) = prototypes_for(build(), 3), prototypes_for(build())

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        s, own = F.normalize(z) @ F.normalize(prototypes).T / 0.02, labels == y[:, None]
        contrast = (s.logsumexp(1) - s.masked_fill(~own, -torch.inf).logsumexp(1)).mean()
        return F.cross_entropy(logits, y) + contrast + F.mse_loss(z, means[y])

    return loss


def plain_fedplvm(build: Build) -> Loss:
    """As FPL, with a power of the cosine, and the angle to the mean."""
    (prototypes, labels), (means, _) = prototypes_for(build(), 3), prototypes_for(build())

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        s = (F.normalize(z) @ F.normalize(prototypes).T).clamp_min(1e-6) ** 0.25 / 0.07
        contrast = (s.logsumexp(1) - s.masked_fill(labels != y[:, None], -torch.inf).logsumexp(1)).mean()
        away = (1 - F.cosine_similarity(z, means[y])).square().mean()
        return F.cross_entropy(logits, y) + contrast + 2 * away

    return loss


def plain_fedplcc(build: Build) -> Loss:
    """Three weighted prototypes of each class, of which two attract."""
    prototypes, labels = prototypes_for(build(), 3)
    weights = torch.full((30,), 1 / 3, device=labels.device)

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        s = (F.normalize(z) @ F.normalize(prototypes).T).clamp_min(1e-6).sqrt()
        lumps, own = weights * (s / 0.07).exp(), labels == y[:, None]
        contrast = (lumps.sum(1) / (lumps * own).sum(1)).log().mean()
        best = (s * weights).masked_fill(~own, 0).topk(2).values.sum(1).mean()
        return F.cross_entropy(logits, y) + contrast - 10 * best

    return loss


def plain_fcclplus(build: Build) -> Loss:
    """A teacher, whose other classes are kept."""
    teacher = build().eval()

    def loss(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        logits = model(x).logits
        with torch.no_grad():
            known = F.log_softmax(teacher(x).logits / 3, 1)
        parts = known.exp() * (known - F.log_softmax(logits / 3, 1))
        return F.cross_entropy(logits, y) + 9 * (parts.sum(1) - parts.gather(1, y[:, None])[:, 0]).mean()

    return loss


def public_steps(model: models.Net, x: Tensor) -> None:
    """FCCL+'s public images, 1,000 in batches of 256: every client looks at them, and makes a step of Adam on each batch."""
    target, size = torch.rand(256, 10, device=x.device), 256
    for _ in range(CLIENTS):
        for batch in x[: 3 * size].split(size):
            with torch.no_grad():
                z = F.normalize(model(batch).representation)
                wanted = (z @ z.T / 0.02).log_softmax(1)
            z, logits = model(batch)
            a, b = (F.batch_norm(v, None, None, training=True) for v in (logits, target[: len(batch)]))
            matrix = a.T @ b / len(batch)
            z = F.normalize(z)
            alike = F.kl_div((z @ z.T / 0.02).log_softmax(1), wanted, reduction="batchmean", log_target=True)
            adam = torch.optim.Adam(model.parameters(), 1e-3)
            adam.zero_grad()
            ((matrix - 1).square().sum() + 3 * alike).backward()
            adam.step()


@torch.no_grad()
def pass_over_all(model: models.Net, x: Tensor) -> None:
    """Representations of all images in eval mode, of which prototypes are made."""
    model.eval()
    for batch in x.split(500):
        model(batch)
    model.train()


def all_of_it(name: str) -> bool:
    return True


def plain_fedprior(build: Build) -> Loss:
    shift = torch.linspace(-3, -1, 10, device=next(build().parameters()).device)

    return lambda model, x, y: F.cross_entropy(model(x).logits + shift, y)


def head(name: str) -> bool:
    return "fc" in name or "classifier" in name


class Plain(NamedTuple):
    """A method without this package: its loss, which parameters its phases train, and what a round has beside its steps."""

    loss: Callable[[Build], Loss] = plain_fedavg
    phases: Sequence[Callable[[str], bool]] = (all_of_it,)
    beside: Callable[[models.Net, Tensor], None] | None = None


OF_MOON, OF_FEDPROTO, OF_FEDPLCC = "simple CNN, batch 64", "MNIST network, batch 8", "domains, 5 epochs"
ROWS: list[tuple[str, str, Plain]] = [
    ("FedAvg", OF_MOON, Plain()),
    ("SOLO", OF_MOON, Plain()),
    ("FedProx", OF_MOON, Plain(plain_fedprox)),
    ("SCAFFOLD", OF_MOON, Plain(plain_scaffold)),
    ("FedAvgM", OF_MOON, Plain()),
    ("MOON", OF_MOON, Plain(plain_moon)),
    ("MOON+FedAvgM", OF_MOON, Plain(plain_moon)),
    ("FedProc", OF_MOON, Plain(plain_fedproc, beside=pass_over_all)),
    ("FedSSC", OF_MOON, Plain(plain_fedssc, beside=pass_over_all)),
    ("FedAvg", "small net, batch 8", Plain()),
    ("MOON", "small net, batch 8", Plain(plain_moon)),
    ("FedProto", OF_FEDPROTO, Plain(plain_fedproto, beside=pass_over_all)),
    ("Local", OF_FEDPROTO, Plain()),
    ("FeSEM", OF_FEDPROTO, Plain()),
    ("FedPer", OF_FEDPROTO, Plain()),
    ("FedRep", OF_FEDPROTO, Plain(phases=(head, lambda name: not head(name)))),
    ("FPL", OF_FEDPLCC, Plain(plain_fpl, beside=pass_over_all)),
    ("FedPLVM", OF_FEDPLCC, Plain(plain_fedplvm, beside=pass_over_all)),
    ("FedProto+FedAvg", OF_FEDPLCC, Plain(plain_fedproto, beside=pass_over_all)),
    ("FedPLCC", OF_FEDPLCC, Plain(plain_fedplcc, beside=pass_over_all)),
    ("FCCL+", OF_FEDPLCC, Plain(plain_fcclplus, beside=public_steps)),
    ("FedPrior", OF_MOON, Plain(plain_fedprior)),
]


def methods() -> dict[str, type[FedAvg]]:
    """All methods of all notebooks."""
    modules = [papers.load(path.stem) for path in papers.notebooks()]
    return {name: cls for module in modules for name, cls in getattr(module, "METHODS", {}).items()}


def made_up(channels: int, side: int, images: int, augmentation: Augmentation) -> Dataset:
    """Random images with ten classes, and some more for testing: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (images + TEST_IMAGES, channels, side, side), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, images + TEST_IMAGES))
    return Dataset(
        name="made up",
        images=pixels[:images],
        labels=labels[:images],
        test_images=pixels[images:],
        test_labels=labels[images:],
        classes=tuple("0123456789"),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        augmentation=augmentation,
        fingerprint="",
        source="made up",
    )


def bare_loop(
    plain: Plain, loss: Loss, model: models.Net, x: Tensor, y: Tensor, batch_size: int, steps: int, *, fixed: bool = False
) -> float:
    """Seconds per step of plain PyTorch; with ``fixed`` every step is on the same batch."""
    model.train()
    models.seed_dropout(model, torch.Generator(x.device))
    begin = _now(x)
    if plain.beside:
        plain.beside(model, x)
    for phase, trains in enumerate(plain.phases):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trains(name))
        trained = [p for p in model.parameters() if p.requires_grad]
        sgd = torch.optim.SGD(trained, lr=0.01, momentum=0.9, weight_decay=1e-5, foreach=True)
        for step in range(phase * steps // len(plain.phases), (phase + 1) * steps // len(plain.phases)):
            start = 0 if fixed else step * batch_size % (len(x) - batch_size + 1)
            batch = slice(start, start + batch_size)
            sgd.zero_grad()
            loss(model, x[batch], y[batch]).backward()
            sgd.step()
    seconds = (_now(x) - begin) / steps
    model.requires_grad_(True)
    return seconds


def _now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def federated(federation: Federation) -> tuple[float, int]:
    """Seconds per SGD step of a whole round, evaluation included; and the number of steps."""
    begin = _now(federation.labels)
    federation.run_round()
    steps = sum(client.steps for client in federation.clients)
    return (_now(federation.labels) - begin) / steps, steps


class Row(NamedTuple):
    """What was measured: seconds per step [alternations, 3] of the arithmetic alone, the bare loop, the federated round."""

    method: str
    case: str
    seconds: np.ndarray
    steps: int
    batch_size: int

    @property
    def ratio(self) -> float:
        """Of the federated round to the bare loop, medians over the alternations."""
        return median(self.seconds[:, 2]) / median(self.seconds[:, 1])

    def __str__(self) -> str:
        alone, bare, federated = (median(column) for column in self.seconds.T)
        single = self.seconds[:, 2] / self.seconds[:, 1]
        return (
            f"{self.method:<16}{self.case:<24}{self.ratio:6.2f}{f'{single.min():.2f} to {single.max():.2f}':>15}"
            f"{federated / alone:11.2f}{1e3 * bare:9.2f}{1e3 * federated:10.2f}{federated * self.steps:10.2f}"
            f"{self.batch_size / federated:12,.0f}" + f"  above {AIM}" * bool(self.ratio > AIM)
        )


HEAD = (
    f"{'method':<16}{'network':<24}{'ratio':>6}{'single ones':>15}{'to step':>11}{'bare':>9}{'round':>10}{'a round':>10}"
    f"{'images':>12}\n{'':<16}{'':<24}{'':>6}{'':>15}{'alone':>11}{'ms/step':>9}{'ms/step':>10}{'s':>10}{'/s':>12}"
)


def measure(
    name: str, case: str, plain: Plain, cls: type[FedAvg], device: str, alternations: int, workers: int | None = None
) -> Row:
    """Time a method in a case; ``workers`` as in `Federation`."""
    model, channels, side, images, batch_size, epochs, augmentation = CASES[case]
    dataset = made_up(channels, side, images, augmentation)
    with_head = models.MODELS[model].head is not None
    build = partial(models.build, model, 10, channels=channels, side=side, projection_head=with_head)
    parts = partition.dirichlet(dataset.labels.numpy(), CLIENTS, 0.5, np.random.RandomState(0))
    # clients with models of their own have test images of their own
    tests = np.array_split(np.arange(TEST_IMAGES), CLIENTS) if cls.personal else None
    # a small rate: nothing can be learnt from random images, and once a run diverges every image is a cluster of its own
    training = Training(1, epochs, batch_size, 0.001, 0.9, 1e-5)
    federation = Federation(cls(), dataset, parts, build, training, test_parts=tests, device=device, workers=workers)
    x, y = ((dataset.images.float() / 255 - 0.5) / 0.25).to(device), dataset.labels.to(device)
    loss = plain.loss(lambda: build().to(device))
    bare = partial(bare_loop, plain, loss, build().to(device), x, y, batch_size)
    federated(federation)
    _, steps = federated(federation)  # warm up, and learn the number of steps
    bare(steps)
    seconds = [(bare(steps, fixed=True), bare(steps), federated(federation)[0]) for _ in range(alternations)]
    if not all(entry["finite"] for entry in federation.history):
        raise RuntimeError(f"{name} diverged on random images: what was measured are steps on NaN.")
    return Row(name, case, np.array(seconds), steps, batch_size)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=_count, default=5, metavar="N")
    parser.add_argument("--method", action="append", metavar="NAME", help="only this method; may be given again")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--workers", type=_count, metavar="N", help="clients side by side: cores, or streams of a GPU")
    given = parser.parse_args(arguments)
    known = methods()
    for name in given.method or ():
        if name not in known:
            parser.error(f"there is no method {name!r}; there are {', '.join(known)}")
    print(f"{runs.device_name(given.device)[0]}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(
        f"A round is {CLIENTS} clients with one epoch each, if the case does not say otherwise; "
        f"medians of {given.alternations}; the aim is a ratio of {AIM}.\n"
    )
    print(HEAD)
    for name, case, plain in ROWS:
        if not given.method or name in given.method:
            print(measure(name, case, plain, known[name], given.device, given.alternations, given.workers), flush=True)


if __name__ == "__main__":
    main()
