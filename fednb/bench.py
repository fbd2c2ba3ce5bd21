"""``make bench``: what the federation costs over a bare loop of the same SGD steps.

The bare loop trains one model on tensors in memory: foreach SGD, no augmentation, no averaging, no evaluation, all cores for
each step; for MOON with two frozen networks beside it, which see every batch too, for FedProto with ten prototypes, for
FedPLCC with as many as it is sent. The federated round does all of that and the same number of steps on batches of the same
size; for FedPLCC it also clusters. The two alternate, so that a busy machine disturbs both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F

from fednb import models, partition
from fednb.data import Augmentation, Dataset
from fednb.federation import FedAvg, Federation, Training

# name: (model, channels, side, images, batch size, augmentation, methods)
CASES = {
    "simple CNN, batch 64": (
        *("simple-cnn", 3, 32, 10_000, 64, Augmentation(pad=4, pad_mode="reflect", flip=True)),
        ("FedAvg", "MOON"),
    ),
    "small net, batch 8": ("digits-cnn", 1, 8, 4_000, 8, Augmentation(), ("FedAvg", "MOON")),
    "MNIST network, batch 8": ("mnist-cnn", 1, 28, 4_000, 8, Augmentation(), ("FedProto",)),
    "small net, batch 32": ("digits-cnn", 3, 16, 4_000, 32, Augmentation(pad=2, flip=True), ("FedPLCC",)),
}


def made_up(channels: int, side: int, images: int, augmentation: Augmentation) -> Dataset:
    """Random images with ten classes, 2,000 of them for testing: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (images + 2000, channels, side, side), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, images + 2000))
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


Loss = Callable[[models.Net, torch.Tensor, torch.Tensor], torch.Tensor]


def plain_fedavg(build: Callable[[], models.Net]) -> Loss:
    """FedAvg's loss as one writes it without this package."""
    return lambda model, x, y: F.cross_entropy(model(x).logits, y)


def plain_moon(build: Callable[[], models.Net]) -> Loss:
    """MOON's loss as one writes it without this package: two networks in eval mode beside the one that is trained."""
    frozen = [build().eval() for _ in range(2)]

    def loss(model: models.Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z, logits = model(x)
        with torch.no_grad():
            others = [network(x).representation for network in frozen]
        similarities = torch.stack([F.cosine_similarity(z, other) for other in others], 1) / 0.5
        first = torch.zeros(len(x), dtype=torch.long)
        return F.cross_entropy(logits, y) + F.cross_entropy(similarities, first)

    return loss


def plain_fedproto(build: Callable[[], models.Net]) -> Loss:
    """FedProto's loss as one writes it without this package: the prototypes are rows of a table."""
    prototypes = torch.rand(10, build().classifier.in_features)

    def loss(model: models.Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z, logits = model(x)
        return F.cross_entropy(logits, y) + F.mse_loss(z, prototypes[y])

    return loss


def plain_fedplcc(build: Callable[[], models.Net]) -> Loss:
    """FedPLCC's loss as one writes it without this package: three prototypes of each class, of which two attract."""
    prototypes, labels = torch.rand(30, build().classifier.in_features), torch.arange(30) % 10
    weights = torch.full((30,), 1 / 3)

    def loss(model: models.Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z, logits = model(x)
        s = (F.normalize(z) @ F.normalize(prototypes).T).clamp_min(1e-6).sqrt()
        lumps, own = weights * (s / 0.07).exp(), labels == y[:, None]
        contrast = (lumps.sum(1) / (lumps * own).sum(1)).log().mean()
        best = (s * weights).masked_fill(~own, 0).topk(2).values.sum(1).mean()
        return F.cross_entropy(logits, y) + contrast - 10 * best

    return loss


def bare_loop(loss: Loss, model: models.Net, x: torch.Tensor, y: torch.Tensor, batch_size: int, steps: int) -> float:
    """Seconds per step of plain PyTorch."""
    model.train()
    models.seed_dropout(model, torch.Generator())
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5, foreach=True)
    begin = time.perf_counter()
    for step in range(steps):
        start = step * batch_size % (len(x) - batch_size + 1)
        batch = slice(start, start + batch_size)
        sgd.zero_grad()
        loss(model, x[batch], y[batch]).backward()
        sgd.step()
    return (time.perf_counter() - begin) / steps


def federated(federation: Federation) -> tuple[float, int]:
    """Seconds per SGD step of a whole round, evaluation included; and the number of steps."""
    begin = time.perf_counter()
    federation.run_round()
    steps = sum(client.steps for client in federation.clients)
    return (time.perf_counter() - begin) / steps, steps


def compare(bare: Callable[[int], float], federation: Federation, alternations: int) -> np.ndarray:
    """Seconds per step, [alternations, 2]: bare loop, federated round."""
    _, steps = federated(federation)  # warm up, and learn the number of steps
    bare(steps)
    return np.array([(bare(steps), federated(federation)[0]) for _ in range(alternations)])


def main() -> None:
    from fednb.papers.fedplcc import FedPLCC
    from fednb.papers.fedproto import FedProto
    from fednb.papers.moon import MOON

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=9)
    alternations = parser.parse_args().alternations
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; a round is ten clients with one epoch each")
    methods = {"FedAvg": (FedAvg(), plain_fedavg), "MOON": (MOON(), plain_moon), "FedProto": (FedProto(), plain_fedproto)}
    methods["FedPLCC"] = (FedPLCC(), plain_fedplcc)
    for case, (model, channels, side, images, batch_size, augmentation, names) in CASES.items():
        dataset = made_up(channels, side, images, augmentation)
        head = models.MODELS[model].head is not None
        build = partial(models.build, model, 10, channels=channels, side=side, projection_head=head)
        parts = partition.dirichlet(dataset.labels.numpy(), 10, 0.5, np.random.RandomState(0))
        x = (dataset.images.float() / 255 - 0.5) / 0.25
        for name in names:
            method, plain = methods[name]
            # clients with models of their own have test images of their own
            tests = np.array_split(np.arange(2000), 10) if method.personal else None
            training = Training(1, 1, batch_size, 0.01, 0.9, 1e-5)
            federation = Federation(method, dataset, parts, build, training, test_parts=tests, device="cpu")
            bare = partial(bare_loop, plain(build), build(), x, dataset.labels, batch_size)
            seconds = compare(bare, federation, alternations)
            ratios = seconds[:, 1] / seconds[:, 0]
            print(
                f"{name}, {case}: bare {median(seconds[:, 0]) * 1e3:.2f} ms, federated {median(seconds[:, 1]) * 1e3:.2f} ms "
                f"per step; ratio of medians {median(seconds[:, 1]) / median(seconds[:, 0]):.2f}, "
                f"of minima {seconds[:, 1].min() / seconds[:, 0].min():.2f}, "
                f"single ratios {ratios.min():.2f} to {ratios.max():.2f} over {alternations} alternations"
            )


if __name__ == "__main__":
    main()
