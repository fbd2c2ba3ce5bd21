"""``make bench``: seconds per SGD step of whole federated rounds, and what they cost over a bare loop of the same steps.

    python tests/bench.py [--method NAME ...] [--device cuda] [--together] [--workers N] [--alternations N]

The bare loop is plain PyTorch on tensors in memory: one model, no augmentation, no averaging, no evaluation, all cores for
each step. It is written for FedAvg and MOON (two frozen networks). The round does all of what the loop leaves out. The two
alternate, so that a busy machine disturbs both. With ``--together`` the table tells instead what a client's step takes where
one step moves a single client, all clients, or all clients of three seeds.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F

from fednb import build, models, papers, settings
from fednb.data import Augmentation
from fednb.gpu import stacked
from fednb_lab.arrays import register

AIM = 1.15  # a federated round takes at most so many times as long as the bare loop
CLIENTS, TEST_IMAGES = 10, 2000

METHODS = papers.methods()
# network, shape and number of images, batch size, augmentation
CASES = {
    "simple CNN, batch 64": (
        "simple-cnn",
        (3, 32, 32),
        10_000,
        64,
        Augmentation(pad=4, pad_mode="reflect", flip=True),
    ),
    "small net, batch 8": ("digits-cnn", (1, 8, 8), 4_000, 8, Augmentation()),
    "MNIST network, batch 8": ("mnist-cnn", (1, 28, 28), 4_000, 8, Augmentation()),
}


def plain_losses(start):
    """The losses as one writes them without this package."""

    def fedavg(model, x, y):
        return F.cross_entropy(model(x).logits, y)

    def moon(model, x, y):
        z, logits = model(x)
        with torch.no_grad():
            others = [network(x).representation for network in (start, start)]
        s = torch.stack([F.cosine_similarity(z, other) for other in others], 1) / 0.5
        return F.cross_entropy(logits, y) + F.cross_entropy(s, torch.zeros_like(y))

    return {"FedAvg": fedavg, "MOON": moon}


def now(x):
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()


def bare_loop(loss, model, x, y, batch_size, steps):
    """Seconds per step of plain PyTorch."""
    models.seed_dropout(model, partial(torch.rand, device=x.device))
    begin = now(x)
    model.train()
    sgd = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5, foreach=True
    )
    for step in range(steps):
        start = step * batch_size % (len(x) - batch_size + 1)
        sgd.zero_grad()
        loss(model, x[start : start + batch_size], y[start : start + batch_size]).backward()
        sgd.step()
    return (now(x) - begin) / steps


def federated(*federations):
    """Seconds per SGD step of a client in a whole round, evaluation included, of federations side by side; and the steps."""
    begin = now(federations[0].labels)
    with ThreadPoolExecutor(len(federations)) as pool:
        entries = list(pool.map(lambda federation: federation.run_round(), federations))
    assert all(entry["finite"] for entry in entries), (
        "it diverged on random images: these would be steps on NaN"
    )
    steps = sum(client.steps for federation in federations for client in federation.clients)
    return (now(federations[0].labels) - begin) / steps, steps


def prepare(case, name, device, *, workers=None, train=None, seed=0):
    """A federation of a case, on random images of ten classes: the time of a step does not depend on what they show."""
    model, shape, images, batch_size, augmentation = CASES[case]
    rng, dataset = np.random.default_rng(0), f"noise-{model}"
    pixels = rng.integers(0, 256, (images + TEST_IMAGES, *shape), dtype=np.uint8)
    labels = rng.integers(0, 10, images + TEST_IMAGES)
    halves = (
        half[part] for part in (slice(images), slice(images, None)) for half in (pixels, labels)
    )
    register(dataset, *halves, augmentation=augmentation)
    given = {"model": model, "batch_size": batch_size, "num_rounds": 1, "local_epochs": 1}
    # a small rate: nothing can be learnt from random images, and once a run diverges every image is a cluster of its own
    given |= {"lr": 0.001, "seed": seed}
    given["projection_head"] = models.MODELS[model].head is not None
    chosen = settings.resolve(METHODS, method=name, dataset=dataset, **given)
    federation = build.federation(chosen, METHODS, device=device, workers=workers)
    federation.train = train or federation.train
    if METHODS[name].personal:  # clients with models of their own have test images of their own
        federation.test_parts = np.array_split(np.arange(TEST_IMAGES), CLIENTS)
    return federation


def measure(name, case, device, alternations, workers):
    """A line of the table: time a method in a case."""
    federation = prepare(case, name, device, workers=workers)
    batch_size, make = federation.training.batch_size, federation.build_model
    dataset = federation.dataset
    x, y = ((dataset.images.float() / 255 - 0.5) / 0.25).to(device), dataset.labels.to(device)
    loss, model = plain_losses(make().to(device).eval()).get(name), make().to(device)
    loops, rounds = [], []
    for _ in range(alternations + 2):
        rounds.append(federated(federation))
        loops += [bare_loop(loss, model, x, y, batch_size, rounds[-1][1])] if loss else []
    middle, steps = median(seconds for seconds, _ in rounds[2:]), rounds[-1][1]  # two warm up
    told = f"{name:<16}{case:<24}{1e3 * middle:9.2f}{middle * steps:9.2f}"
    told += f"{batch_size / middle:12,.0f}"
    if loss:
        ratio = middle / median(loops[2:])
        told += f"{1e3 * median(loops[2:]):9.2f}{ratio:8.2f}" + f"  above {AIM}" * (ratio > AIM)
    return told


def measure_together(name, case, device, alternations):
    """A line of the other table: milliseconds of a client's step where it is made alone, with all, and with three seeds."""
    told, limit = f"{name:<16}{case:<24}", stacked.LARGE
    for seeds, alone in ((1, True), (1, False), (3, False)):
        train, stacked.LARGE = stacked.SeedsTogether(seeds), 0 if alone else limit
        federations = [prepare(case, name, device, train=train, seed=seed) for seed in range(seeds)]
        times = [federated(*federations)[0] for _ in range(alternations + 2)]
        told += f"{1e3 * median(times[2:]):12.2f}"  # the first two warm up
    stacked.LARGE = limit
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", action="append", choices=METHODS, metavar="NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--together", action="store_true")
    given = parser.parse_args()
    machine = build.device_name(given.device)
    print(f"{machine}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"A round is {CLIENTS} clients with an epoch each; medians of {given.alternations}.\n")
    columns = f"{'ms/step':>9}{'s/round':>9}{'images/s':>12}{'bare ms':>9}{'ratio':>8}"
    if given.together:
        columns = f"{'alone':>12}{'all clients':>12}{'three seeds':>12}  (ms/step)"
    print(f"{'method':<16}{'network':<24}{columns}")
    for name in given.method or METHODS:
        cnn, small, mnist = CASES
        cases = [cnn, small] if name in ("FedAvg", "MOON") else [cnn]
        if METHODS[name].personal:
            cases = [mnist]
        # where a stacked step of larger networks is nothing but slow
        if given.together and given.device == "cpu":
            cases = [mnist if METHODS[name].personal else small]
        for case in cases:
            told = name, case, given.device, given.alternations
            line = measure_together(*told) if given.together else measure(*told, given.workers)
            print(line, flush=True)
