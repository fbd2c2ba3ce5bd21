"""``make bench``: seconds per SGD step of whole federated rounds, and what they cost over a bare loop of the same steps.

The bare loop is plain PyTorch on tensors in memory: one model, no augmentation, no averaging, no evaluation, all cores for
each step. It is written for three methods: FedAvg, MOON (two frozen networks) and FedProto (a pass over the images per
round). The round does all of what the loop leaves out. The two alternate, so that a busy machine disturbs both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednb import models, papers, partition
from fednb.data import Augmentation, Dataset
from fednb.experiments import build
from fednb.federation import FedAvg, Federation, Training

AIM = 1.15  # a federated round takes at most so many times as long as the bare loop
CLIENTS, TEST_IMAGES = 10, 2000

# model, channels, side, images, batch size, local epochs, augmentation
CASES = {
    "simple CNN, batch 64": ("simple-cnn", 3, 32, 10_000, 64, 1, Augmentation(pad=4, pad_mode="reflect", flip=True)),
    "small net, batch 8": ("digits-cnn", 1, 8, 4_000, 8, 1, Augmentation()),
    "MNIST network, batch 8": ("mnist-cnn", 1, 28, 4_000, 8, 1, Augmentation()),
    "domains, 5 epochs": ("digits-cnn", 3, 16, 4_000, 32, 5, Augmentation(pad=2, flip=True)),
}
# Where a method is measured; all others on MOON's network
_CASE = dict.fromkeys(("FedProto", "FedProto-mh", "Local", "FeSEM", "FedPer", "FedRep"), "MNIST network, batch 8")
_CASE |= dict.fromkeys(("FPL", "FedPLVM", "FedProto+FedAvg", "FedPLCC", "FCCL+"), "domains, 5 epochs")

Loss = Callable[[models.Net, Tensor, Tensor], Tensor]


def plain_loss(method: str, start: models.Net) -> Loss | None:
    """The loss as one writes it without this package; None for a method without a bare loop."""
    frozen = [start, start]
    prototypes = torch.rand_like(start.classifier.weight)

    def fedavg(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x).logits, y)

    def moon(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        with torch.no_grad():
            others = [network(x).representation for network in frozen]
        s = torch.stack([F.cosine_similarity(z, other) for other in others], 1) / 0.5
        return F.cross_entropy(logits, y) + F.cross_entropy(s, torch.zeros_like(y))

    def fedproto(model: models.Net, x: Tensor, y: Tensor) -> Tensor:
        z, logits = model(x)
        return F.cross_entropy(logits, y) + F.mse_loss(z, prototypes[y])

    return {"FedAvg": fedavg, "MOON": moon, "FedProto": fedproto}.get(method)


def made_up(channels: int, side: int, images: int, augmentation: Augmentation) -> Dataset:
    """Random images of ten classes: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (images + TEST_IMAGES, channels, side, side), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, images + TEST_IMAGES))
    ends = {
        "images": pixels[:images],
        "labels": labels[:images],
        "test_images": pixels[images:],
        "test_labels": labels[images:],
    }
    told = {"mean": (0.5,) * channels, "std": (0.25,) * channels, "fingerprint": "", "source": "made up"}
    return Dataset(name="made up", classes=tuple("0123456789"), augmentation=augmentation, **ends, **told)


def _now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def bare_loop(loss: Loss, model: models.Net, x: Tensor, y: Tensor, batch_size: int, steps: int, once: bool) -> float:
    """Seconds per step of plain PyTorch; with ``once`` a pass over all images, of which prototypes are made, is in it."""
    models.seed_dropout(model, torch.Generator(x.device))
    begin = _now(x)
    if once:
        with torch.no_grad():
            for batch in x.split(500):
                model.eval()(batch)
    model.train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5, foreach=True)
    for step in range(steps):
        start = step * batch_size % (len(x) - batch_size + 1)
        batch = slice(start, start + batch_size)
        sgd.zero_grad()
        loss(model, x[batch], y[batch]).backward()
        sgd.step()
    return (_now(x) - begin) / steps


def federated(federation: Federation) -> tuple[float, int]:
    """Seconds per SGD step of a whole round, evaluation included; and the number of steps."""
    begin = _now(federation.labels)
    if not federation.run_round()["finite"]:
        raise RuntimeError(f"{type(federation.method).__name__} diverged on random images: these would be steps on NaN.")
    steps = sum(client.steps for client in federation.clients)
    return (_now(federation.labels) - begin) / steps, steps


def measure(
    name: str, case: str, cls: type[FedAvg], device: str = "cpu", alternations: int = 5, workers: int | None = None
) -> str:
    """A line of the table: time a method in a case."""
    model, channels, side, images, batch_size, epochs, augmentation = CASES[case]
    dataset = made_up(channels, side, images, augmentation)
    with_head = models.MODELS[model].head is not None
    make = partial(models.build, model, 10, channels=channels, side=side, projection_head=with_head)
    parts = partition.dirichlet(dataset.labels.numpy(), CLIENTS, 0.5, np.random.RandomState(0))
    # clients with models of their own have test images of their own
    tests = np.array_split(np.arange(TEST_IMAGES), CLIENTS) if cls.personal else None
    # a small rate: nothing can be learnt from random images, and once a run diverges every image is a cluster of its own
    training = Training(1, epochs, batch_size, 0.001, 0.9, 1e-5)
    train = build.trainer(device)
    federation = Federation(
        cls(), dataset, parts, make, training, test_parts=tests, device=device, workers=workers, train=train
    )
    x, y = ((dataset.images.float() / 255 - 0.5) / 0.25).to(device), dataset.labels.to(device)
    loss = plain_loss(name, make().to(device).eval())
    bare = partial(bare_loop, loss, make().to(device), x, y, batch_size, once=name == "FedProto")
    federated(federation)
    _, steps = federated(federation)  # warm up, and learn the number of steps
    loops, rounds = [bare(steps)] if loss else [], []
    for _ in range(alternations):
        loops += [bare(steps)] if loss else []
        rounds.append(federated(federation)[0])
    told = (
        f"{name:<16}{case:<24}{1e3 * median(rounds):9.2f}{median(rounds) * steps:9.2f}{batch_size / median(rounds):12,.0f}"
    )
    if loss:
        ratio = median(rounds) / median(loops[1:])
        told += f"{1e3 * median(loops[1:]):9.2f}{ratio:8.2f}" + f"  above {AIM}" * (ratio > AIM)
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=5, metavar="N")
    parser.add_argument("--method", action="append", metavar="NAME", help="only this method; may be given again")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--workers", type=int, metavar="N", help="clients side by side: cores, or streams of a GPU")
    given = parser.parse_args(arguments)
    known = papers.methods()
    for name in given.method or ():
        if name not in known:
            parser.error(f"there is no method {name!r}; there are {', '.join(known)}")
    print(f"{build.device_name(given.device)[0]}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"A round is {CLIENTS} clients with an epoch each unless said; medians of {given.alternations}.\n")
    heads = f"{'ms/step':>9}{'s/round':>9}{'images/s':>12}{'bare ms':>9}{'ratio':>8}"
    print(f"{'method':<16}{'network':<24}{heads}")
    for name, cls in known.items():
        cases = ["simple CNN, batch 64", "small net, batch 8"] if name in ("FedAvg", "MOON") else [_CASE.get(name)]
        for case in cases if not given.method or name in given.method else ():
            print(
                measure(name, case or "simple CNN, batch 64", cls, given.device, given.alternations, given.workers),
                flush=True,
            )


if __name__ == "__main__":
    main()
