"""FINCH, clustering by first neighbours, and FINCH*, which also carries weights.

FINCH (Sarfraz, Sharma, Stiefelhagen, CVPR 2019) links every point to its nearest one, calls the
connected components clusters, and does the same with the means of the clusters. No number of
clusters, no threshold, nothing random. FPL and FedPLVM take its coarsest partition; FedPLCC
(section III-C) adds weights to it and calls that FINCH*.

All distances and means are computed in double precision, whatever the points come in, and on their
device.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from fednb.prototypes import mean_by_class

Metric = Literal["cosine", "euclidean"]

TIE = 1e-13  # distances that differ by less, relative to the vectors, are equal up to rounding
BLOCK = 2**20  # distances held at once: 8 MB


class Clusters(NamedTuple):
    """What FINCH* makes of n points."""

    centres: Tensor  # [C, D]
    weights: Tensor  # [C]
    labels: Tensor  # the cluster of each point, int64 [n]


def first_neighbours(points: Tensor, metric: Metric = "cosine") -> Tensor:
    """Find the nearest other of points [n, D] to each: k¹ in equation 1 of FINCH, int64 [n].

    The cosine distance is 1 - cos; a vector of zeros is at distance 1 from all, other zeros
    included. Of several nearest points, up to rounding, it is the one with the lowest index. Takes
    n² D operations, but never holds all n² distances. Fewer than two points, or any that is not
    finite, are a ``ValueError``.
    """
    x = _checked(points)
    if len(x) < 2:
        raise ValueError(f"There are {len(x)} points; a nearest other point needs at least two.")
    tiny = torch.finfo(x.dtype).tiny
    if metric == "cosine":  # unit vectors; zeros stay zeros, so their cosine with everything is 0
        x = x / x.abs().amax(1, keepdim=True).clamp_min(tiny)
        x = x / x.norm(dim=1, keepdim=True).clamp_min(1)
    else:  # the scale does not matter, but squares must not overflow
        x = x / x.abs().max().clamp_min(tiny)
    size = x.norm(dim=1, keepdim=True)
    found = torch.empty(len(x), dtype=torch.long, device=x.device)
    for rows in torch.arange(len(x), device=x.device).split(max(1, BLOCK // len(x))):
        if metric == "cosine":
            distance = 1 - x[rows] @ x.T
        else:  # differences, not |a|² + |b|² - 2ab, in which near points of a far cluster drown
            distance = torch.cdist(x[rows], x, compute_mode="donot_use_mm_for_euclid_dist")
        distance[rows - rows[0], rows] = torch.inf
        least = distance.amin(1, keepdim=True)
        ties = distance <= least + TIE * (least + size[rows])
        found[rows] = ties.byte().argmax(1)  # the first of them
    return found


def partitions(points: Tensor, metric: Metric = "cosine") -> Tensor:
    """Find partitions of points [n, D], from the finest to the coarsest: labels, int64 [levels, n].

    With k¹ from `first_neighbours`, points i and j are adjacent if j = k¹(i), or k¹(j) = i, or
    k¹(i) = k¹(j) (FINCH, equation 1). The connected components are the first partition. The next
    one comes from the means of the clusters, always means of the original points, and so on. A
    partition into one cluster is left out, unless it is the first. Labels are numbered by first
    occurrence; the federated methods use ``partitions(points)[-1]``.

    Other rules to stop, as in the published code, would never apply: every cluster is joined with
    another one. Points that are not finite are a ``ValueError``.
    """
    x = _checked(points)
    if len(x) < 2:
        return torch.zeros(1, len(x), dtype=torch.long, device=x.device)
    levels = [_components(first_neighbours(x, metric))]
    while levels[-1].any():  # more than one cluster
        labels = levels[-1]
        means = mean_by_class({"vectors": x, "labels": labels})["vectors"]
        levels.append(_components(first_neighbours(means, metric))[labels])
    return torch.stack(levels[:-1] or levels)


def finch_star(
    points: Tensor,
    weights: Tensor | None = None,
    metric: Metric = "cosine",
    *,
    weighted_mean: bool = False,
) -> Clusters:
    """Find the coarsest partition, and the summed weights in it: FINCH* (FedPLCC, equations 9, 10).

    ``weights`` [n] says how many images each of the points [n, D] stands for, by default 1
    (equation 9); it does not decide who is in which cluster. A centre is the plain mean, as in the
    paper, and so what FPL and FedPLVM make of a class, or the ``weighted_mean``. Centres have the
    type of the points, sums that of the weights (whole numbers: int64, and exact). A ``ValueError``
    tells of points that are not finite, and of weights that are not finite or not above zero.
    """
    if weights is None:
        weights = torch.ones(points.shape[:1], dtype=torch.long, device=points.device)
    labels = partitions(points, metric)[-1]
    if weights.shape != labels.shape or not (weights.isfinite() & (weights > 0)).all():
        raise ValueError(
            f"weights must be {len(labels)} finite numbers above zero, one for each point."
        )
    exact = torch.double if weights.is_floating_point() else torch.long
    counts = weights.detach().to(exact)
    members = {"vectors": points.detach().double(), "labels": labels, "counts": counts}
    means = mean_by_class(members, weighted_mean)
    sums = means["counts"]
    if weights.is_floating_point():
        sums = sums.to(weights.dtype)
    return Clusters(means["vectors"].to(points.dtype), sums, labels)


def _checked(points: Tensor) -> Tensor:
    """The points in double precision, without a gradient; a `ValueError` if they are no points."""
    are_vectors = points.ndim == 2 and points.shape[1] > 0 and points.is_floating_point()
    if not are_vectors or not points.isfinite().all():
        raise ValueError(
            f"points is {points.dtype} {list(points.shape)}; it must be floating point [n, D] with "
            "D >= 1, all finite."
        )
    return points.detach().double()


def _components(neighbour: Tensor) -> Tensor:
    """Connected components of the edges i - neighbour(i), int64 [n], numbered by first occurrence.

    The third clause of equation 1 joins points that share a neighbour; they are joined through it
    already.
    """
    n = len(neighbour)
    edges = coo_array((np.ones(n), (np.arange(n), neighbour.cpu().numpy())), (n, n))
    _, labels = connected_components(edges, directed=False)
    return torch.from_numpy(labels).long().to(neighbour.device)
