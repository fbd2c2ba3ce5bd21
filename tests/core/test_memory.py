"""Peak memory does not grow with the number of clients beyond their states."""

import resource
import sys
from functools import partial

import numpy as np
import torch
from fednb.papers.moon import METHODS
from small import noise
from tiny import FORKSERVER
from torch.utils._pytree import tree_leaves

from fednb import models
from fednb.federation import Federation, Training, flat

ROUNDS, SAMPLED = 2, 10


def case(method, num_clients, pipe):
    """A few rounds; in megabytes the peak, what the clients keep between rounds, and one network."""
    dataset = noise(10_000, 200, (3, 32, 32), 10)
    parts = [np.arange(10 * i, 10 * i + 10) for i in range(num_clients)]
    training = Training(ROUNDS, local_epochs=1, batch_size=10, lr=0.01, momentum=0.9)
    build, share = partial(models.build, "simple-cnn", 10), SAMPLED / num_clients
    federation = Federation(
        METHODS[method](), dataset, parts, build, training, participation=share, workers=1
    )
    for _ in range(ROUNDS):
        federation.run_round()
    assert all(sum(c.steps for c in federation.sample(t)) == SAMPLED for t in range(ROUNDS))
    tensors = filter(torch.is_tensor, tree_leaves([c.memory for c in federation.clients]))
    kept = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    network = 4 * len(flat(federation.build_model()))
    pipe.send([value / 2**20 for value in (peak, sum(kept.values()), network)])


def megabytes(method, num_clients):
    """What `case` finds in a process of its own, forked from one that has imported everything and done nothing."""
    here, there = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=case, args=(method, num_clients, there))
    process.start()
    there.close()
    found = here.recv()
    process.join()
    return found


def test_only_clients_that_were_sampled_have_a_state_and_nothing_else_grows():
    megabytes("FedAvg", 20)  # what libraries touch lies in the memory from now on
    (few, _, _), (many, nothing, _) = megabytes("FedAvg", 20), megabytes("FedAvg", 1000)
    assert nothing == 0 and many < few + 30
    peak, kept, network = megabytes("MOON", 1000)
    # a few were sampled twice
    assert 0.8 * ROUNDS * SAMPLED * network < kept < 1.01 * ROUNDS * SAMPLED * network
    # the uploads of a round hold more than one vector per client
    assert peak < many + kept + 60
    assert peak < 3 * 1024
