"""What a step of all clients costs on a GPU, and whether it is right: one command, no data needed.

    python tests/bench_gpu.py [--seconds S] [--only PART ...] [--quick]

It prints the device; for each method the first step against the plain loop's, by kernels; milliseconds of a step by number
of clients, with Triton's kernels and with products of matrices; and the kernels of a step by name. The images are random
bytes of CIFAR-10's shape. A part that fails prints its error, and the next one begins; none begins after ``--seconds``.
With ``--quick`` all of it runs at a tiny size, on a CPU in Triton's interpreter: that tries the script, and measures
nothing.
"""

import argparse
import os
import time
import traceback
from functools import partial

import numpy as np
import torch

from fednb import build, papers, settings
from fednb.data import Augmentation, Dataset
from fednb.gpu import stacked

METHODS = papers.methods()
TIMED = ("MOON", "FedAvg", "FedProc", "FedSSC")
RIGHT = "FedAvg FedProx SCAFFOLD MOON FedProc FedSSC FedProto FedPLCC FedPLVM FPL".split()
OPTIONS = {"FedSSC": {"min_images": 1}, "FedPLVM": {"lam": 1.0}}


class Sizes:
    """How large everything is."""

    def __init__(self, quick):
        self.images = 24 if quick else 50_000
        self.batch = 8 if quick else 64
        self.side = 8 if quick else 32
        self.model = "digits-cnn" if quick else "simple-cnn"
        self.seeds = (1,) if quick else (1, 2, 3)  # ten clients each
        self.clients = 2 if quick else 10
        self.replays = 1 if quick else 50


def random_dataset(sizes):
    """As many random images as CIFAR-10 has, of the same shape."""
    rng = np.random.default_rng(0)

    def pixels(n):
        return torch.from_numpy(rng.integers(0, 256, (n, 3, sizes.side, sizes.side), np.uint8))

    return Dataset(
        name="cifar10",
        images=pixels(sizes.images),
        labels=torch.from_numpy(rng.permutation(np.arange(sizes.images) % 10)),
        test_images=pixels(100),
        test_labels=torch.arange(100) % 10,
        classes=tuple("abcdefghij"),
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        augmentation=Augmentation(pad=4, flip=True),
        fingerprint="0" * 16,
        source="random",
    )


def federation(name, seed, sizes, device, model=None):
    """A federation as a run of this method on CIFAR-10 has it, on the random images."""
    chosen = settings.resolve(
        METHODS,
        method=name,
        dataset="cifar10",
        model=model or sizes.model,
        num_rounds=100,
        local_epochs=1,
        batch_size=sizes.batch,
        num_clients=sizes.clients,
        seed=seed,
        **OPTIONS.get(name, {}),
    )
    return build.federation(chosen, METHODS, device=device, workers=1)


def rounds_together(feds, trainer, rounds):
    """Make rounds of federations in lockstep, without their evaluation; seconds of each."""
    seconds = []
    for _ in range(rounds):
        begin = now()
        requests = []
        for fed in feds:
            for client in fed.sample(fed.rounds_done):
                received = fed.method.broadcast(fed.server, client.id)
                requests.append(stacked.TrainRequest(fed, client, received, fed.rounds_done))
        uploads = iter(trainer.train(requests))
        for fed in feds:
            own = [next(uploads) | {"client": client.id} for client in fed.clients]
            fed.server = fed.method.aggregate(fed.server, own, fed.rounds_done)
            fed.rounds_done += 1
        seconds.append(now() - begin)
    return seconds


def now():
    """Seconds, when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def timed_replay(stack, shape, replays):
    """Milliseconds of a step of this shape."""
    replay = stack._replays[shape]
    replays = max(1, min(replays, stack.index.shape[1] // shape.batch_size - 1))
    stack.position.zero_()
    replay()
    stack.position.zero_()
    begin = now()
    for _ in range(replays):
        replay()
    return 1e3 * (now() - begin) / replays


def right(name, sizes, device):
    """Whether the first steps of two rounds are those of the plain loop."""
    trainer = stacked.StackedTrainer(check=True, kernels=True)
    feds = [federation(name, 1, sizes, device)]
    seconds = rounds_together(feds, trainer, 2)
    refused = "; refused: the plain loop" if trainer._refused else ""
    kept = "kernels" if trainer.kernels else "PRODUCTS: a kernel failed"
    print(f"  {name:10} {kept}{refused}; rounds {told(seconds)} s", flush=True)


def told(seconds):
    """Seconds in a row."""
    return ", ".join(f"{value:.2f}" for value in seconds)


def speed(name, sizes, device, kernels, num_seeds, profiled=False, model=None):
    """Milliseconds of a step with all clients, with half, with one."""
    trainer = stacked.StackedTrainer(check=False, kernels=kernels)
    feds = [federation(name, seed, sizes, device, model) for seed in sizes.seeds[:num_seeds]]
    seconds = rounds_together(feds, trainer, 2 if sizes.clients == 2 else 3)
    stack = list(trainer.stacks.values())[-1]
    shapes = sorted((s for s in stack._replays if s.are_first), key=lambda s: -s.num_clients)
    kind = "kernels " if trainer.kernels else "products"
    steps = sum(len(client.indices) // sizes.batch for fed in feds for client in fed.clients)
    parts = [
        f"{shape.num_clients}: {timed_replay(stack, shape, sizes.replays):.3f}"
        for shape in dict.fromkeys((shapes[0], shapes[len(shapes) // 2], shapes[-1]))
    ]
    print(
        f"  {name:8} {kind} ms a step by clients  {', '.join(parts)};  rounds of an epoch {told(seconds)} s, "
        f"{1e3 * seconds[-1] / steps:.4f} ms a client's step",
        flush=True,
    )
    if profiled:
        by_name(stack, shapes[0])


def by_name(stack, shape):
    """The kernels of a step, the longest first."""
    if not torch.cuda.is_available():
        print("    (kernels by name: on a GPU)")
        return
    from torch.profiler import ProfilerActivity, profile

    stack.position.zero_()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            stack._replays[shape]()
        torch.cuda.synchronize()
    events = [event for event in seen.key_averages() if event.self_device_time_total]
    count = sum(event.count for event in events) / 3
    total = sum(event.self_device_time_total for event in events) / 3e3
    print(f"    {count:.0f} kernels a step of {shape.num_clients}, {total:.3f} ms of kernels")
    for event in sorted(events, key=lambda event: -event.self_device_time_total)[:18]:
        mean = event.self_device_time_total / 3
        print(f"    {mean:8.1f} us {event.count / 3:5.1f} x {event.key[:100]}")


def main():
    """Run the parts, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--only", nargs="*", metavar="PART", help="parts whose name holds this")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        os.environ["TRITON_INTERPRET"] = "1"
    sizes = Sizes(given.quick)
    device = "cuda" if torch.cuda.is_available() and not given.quick else "cpu"
    dataset = random_dataset(sizes)
    build.load_dataset = lambda name: dataset
    print(f"{build.device_name(device)}; torch {torch.__version__}", flush=True)
    seeds = len(sizes.seeds)
    parts = {"right-MOON": partial(right, "MOON", sizes, device)}
    parts["names-MOON"] = partial(speed, "MOON", sizes, device, True, min(2, seeds), profiled=True)
    for name in TIMED:
        for number in range(1, seeds + 1):
            parts[f"speed-{name}-{number}"] = partial(speed, name, sizes, device, True, number)
    parts["names-FedAvg"] = partial(speed, "FedAvg", sizes, device, True, 1, profiled=True)
    for name in RIGHT:
        parts[f"right-{name}"] = partial(right, name, sizes, device)
    # a large network, whose clients go one at a time
    parts["resnet-10"] = partial(speed, "FedAvg", sizes, device, True, 1, model="resnet-10")
    for name in TIMED[:2]:
        parts[f"products-{name}"] = partial(speed, name, sizes, device, False, min(2, seeds))
    begin = time.perf_counter()
    for name, part in parts.items():
        if given.only and not any(word in name for word in given.only):
            continue
        if time.perf_counter() - begin > given.seconds:
            print(f"{name}: no time left", flush=True)
            continue
        start = time.perf_counter()
        try:
            part()
        except Exception:
            traceback.print_exc(limit=6)
        print(f"-- {name}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
