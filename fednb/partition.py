"""Who owns which training image: labels and a generator in, one index array per client out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

Parts = list[np.ndarray]


class PartitionError(ValueError):
    """A request that no partition can meet; the message says why."""


def _check(num_samples: int, num_clients: int, min_size: int) -> None:
    if num_clients < 1:
        raise PartitionError(f"num_clients is {num_clients}; there must be at least one client.")
    if num_clients * min_size > num_samples:
        raise PartitionError(
            f"{num_clients} clients with at least {min_size} images each need {num_clients * min_size:,} images, "
            f"but there are only {num_samples:,}: take fewer clients or a smaller min_size."
        )


def iid(labels: np.ndarray, num_clients: int, rng: np.random.RandomState) -> Parts:
    """Cut one random permutation into ``num_clients`` parts of equal size (they differ by at most one)."""
    _check(len(labels), num_clients, 1)
    return np.array_split(rng.permutation(len(labels)), num_clients)


def dirichlet(
    labels: np.ndarray,
    num_clients: int,
    beta: float,
    rng: np.random.RandomState,
    *,
    min_size: int = 10,
    balance: bool = True,
    max_draws: int = 1000,
) -> Parts:
    """Label shift by Dirichlet shares, with the published rule of MOON's code.

    For each class k, shares p_k ~ Dir(beta, ..., beta) are drawn, and client j receives the fraction p_kj
    of the class (MOON, section 4.1). The code does two things that the paper does not mention: a client
    that already holds its equal share of all images gets nothing of the later classes, and the whole
    draw is repeated until every client has ``min_size`` images.

    Parameters
    ----------
    labels
        Integer labels, shape [N].
    beta
        Concentration, > 0. Small: each client sees few classes. Large: nearly IID.
    rng
        NumPy's legacy generator. ``np.random.RandomState(0)`` gives the parties of MOON's Table 6.
    min_size
        Smallest number of images that a client may have.
    balance
        False leaves the cap on full clients out: the textbook rule.
    max_draws
        Bound on the repetitions.

    Raises
    ------
    PartitionError
        If the request is impossible, or ``max_draws`` draws did not meet it.
    """
    labels = np.asarray(labels)
    _check(len(labels), num_clients, min_size)
    if not beta > 0:
        raise PartitionError(f"beta is {beta}; the Dirichlet concentration must be positive.")
    equal_share = len(labels) / num_clients
    for _ in range(max_draws):
        parts: list[list[int]] = [[] for _ in range(num_clients)]
        for k in range(int(labels.max()) + 1):
            of_class = np.flatnonzero(labels == k)
            rng.shuffle(of_class)
            shares = rng.dirichlet(np.repeat(beta, num_clients))
            if balance:
                shares = shares * [len(part) < equal_share for part in parts]
            if not shares.sum() > 0:  # tiny beta: every share of the clients with room underflowed
                break
            shares = shares / shares.sum()
            cuts = (np.cumsum(shares) * len(of_class)).astype(int)[:-1]
            for part, indices in zip(parts, np.split(of_class, cuts), strict=True):
                part.extend(indices.tolist())
        else:
            if min(map(len, parts)) >= min_size:
                for part in parts:
                    rng.shuffle(part)
                return [np.array(part) for part in parts]
    raise PartitionError(
        f"None of {max_draws} Dirichlet draws with beta {beta} gave each of {num_clients} clients at least "
        f"{min_size} images: take a larger beta, fewer clients, or a smaller min_size."
    )


def class_counts(parts: Sequence[np.ndarray], labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Images per client and class, shape [clients, classes]."""
    return np.stack([np.bincount(np.asarray(labels)[part], minlength=num_classes) for part in parts])


def digest(parts: Sequence[np.ndarray]) -> str:
    """Sixteen hex digits that change when any client's list of images changes."""
    h = hashlib.sha256()
    for part in parts:
        h.update(np.asarray(part, dtype="<i8").tobytes() + b"|")
    return h.hexdigest()[:16]
