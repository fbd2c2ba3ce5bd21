"""Random draws that depend on four keys and on nothing else."""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_GLOBAL = threading.RLock()  # torch's generator is one for all threads: who seeds it draws alone


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return the generator that belongs to (seed, purpose, round, client), numbers from 0.

    Every draw of a run (sampling, batches, augmentation, initial weights) comes from such a
    generator, so that neither the order of execution nor other code can change a result. Two
    purposes, words such as "batches", give independent streams.
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), round, client])


@contextmanager
def torch_seed(seed: int, purpose: str) -> Iterator[None]:
    """Seed torch's global CPU generator in a block, for the initialisers of ``torch.nn``, say."""
    with _GLOBAL, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(generator(seed, purpose).integers(2**63)))
        yield
