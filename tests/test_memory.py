"""Peak memory does not grow with the number of clients beyond their states."""

import json
import subprocess
import sys

import pytest

from fednb import ROOT

ROUNDS, SAMPLED = 4, 20
# One process imports everything; each case is a fork of it, with a peak of its own.
SCRIPT = """
import json, multiprocessing, resource, sys
from functools import partial
import numpy as np, torch
from fednb import models
from fednb.data import Augmentation, Dataset
from fednb.federation import Federation, Training
from fednb.papers.moon import METHODS

rounds, sampled = map(int, sys.argv[1:3])
rng = np.random.default_rng(0)
images, labels = torch.from_numpy(rng.integers(0, 256, (10_200, 3, 32, 32), np.uint8)), torch.arange(10_200) % 10
dataset = Dataset(
    name="made up", images=images[200:], labels=labels[200:], test_images=images[:200], test_labels=labels[:200],
    classes=tuple("0123456789"), mean=(0.5,) * 3, std=(0.25,) * 3, augmentation=Augmentation(),
    fingerprint="", source="made up",
)


def states(value):
    if isinstance(value, torch.Tensor):
        return {value.data_ptr(): value.numel() * value.element_size()}
    values = value.values() if isinstance(value, dict) else value
    return {k: v for one in values for k, v in states(one).items()}


def case(method, num_clients, pipe):
    parts = [np.arange(10 * i, 10 * i + 10) for i in range(num_clients)]
    training = Training(rounds, local_epochs=1, batch_size=10, lr=0.01, momentum=0.9)
    build = partial(models.build, "simple-cnn", 10)
    federation = Federation(
        METHODS[method](), dataset, parts, build, training, participation=sampled / num_clients, workers=1
    )
    for _ in range(rounds):
        federation.run_round()
    assert all(sum(c.steps for c in federation.sample(t)) == sampled for t in range(rounds))
    kept = states([client.memory for client in federation.clients])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # in bytes
    pipe.send((peak / 2**20, sum(kept.values()) / 2**20, models.num_parameters(federation.build_model()) * 4 / 2**20))


if __name__ == "__main__":
    fork, found = multiprocessing.get_context("fork"), {}
    for method, num_clients in (("FedAvg", 20), ("FedAvg", 1000), ("MOON", 1000), ("SCAFFOLD", 1000)):
        here, there = fork.Pipe()
        process = fork.Process(target=case, args=(method, num_clients, there))
        process.start()
        there.close()
        found[f"{method} {num_clients}"] = here.recv()
        process.join()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def megabytes() -> dict[str, list[float]]:
    """Of each case: the peak, what the clients keep between rounds, and one network."""
    arguments = [sys.executable, "-c", SCRIPT, str(ROUNDS), str(SAMPLED)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def test_a_thousand_clients_take_less_than_three_gigabytes(megabytes: dict[str, list[float]]) -> None:
    assert max(peak for peak, _, _ in megabytes.values()) < 3 * 1024


def test_clients_that_keep_nothing_cost_nothing(megabytes: dict[str, list[float]]) -> None:
    (few, _, _), (many, kept, _) = megabytes["FedAvg 20"], megabytes["FedAvg 1000"]
    assert kept == 0
    assert many < few + 30


@pytest.mark.parametrize("method", ["MOON", "SCAFFOLD"])
def test_only_clients_that_were_sampled_have_a_state_and_nothing_else_grows(
    megabytes: dict[str, list[float]], method: str
) -> None:
    peak, kept, network = megabytes[f"{method} 1000"]
    assert 0.8 * ROUNDS * SAMPLED * network < kept < 1.01 * ROUNDS * SAMPLED * network  # a few were sampled twice
    assert peak < megabytes["FedAvg 1000"][0] + kept + 60  # the uploads of a round hold more than one vector per client
