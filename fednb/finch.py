"""FINCH, clustering by first neighbours, and FINCH*, which also carries weights.

FINCH (Sarfraz, Sharma, Stiefelhagen, CVPR 2019) links every point to its nearest one, calls the connected components
clusters, and does the same with the means of the clusters. No number of clusters, no threshold, nothing random.
FPL and FedPLVM take its coarsest partition; FedPLCC (section III-C) adds weights to it and calls that FINCH*.

All distances and means are computed in double precision, whatever the points come in, and on their device.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Metric = Literal["cosine", "euclidean"]

TIE = 1e-13  # distances closer than this, relative to the vectors, differ by rounding only: they are ties
BLOCK = 2**20  # distances held at once: 8 MB


class Clusters(NamedTuple):
    """What FINCH* makes of n points: ``centres`` [C, D], ``weights`` [C], and ``labels`` [n], the cluster of each point."""

    centres: Tensor
    weights: Tensor
    labels: Tensor


def first_neighbours(points: Tensor, metric: Metric = "cosine") -> Tensor:
    """The nearest other point of each point: k¹ in equation 1 of FINCH.

    Parameters
    ----------
    points
        Shape [n, D], floating point, n >= 2.
    metric
        ``"cosine"`` (1 - cos; a vector of zeros is at distance 1 from all, other zeros included) or ``"euclidean"``.

    Returns
    -------
    Tensor
        Indices, int64 [n]; never a point itself. Of several nearest points it is the one with the lowest index, where
        distances that differ by rounding only count as equal: the order in which a matrix product adds decides nothing.

    Raises
    ------
    ValueError
        For fewer than two points, another shape or type, values that are not finite, or an unknown metric.

    Notes
    -----
    Takes n² D operations and, beside copies of the points, the memory of a block of rows of the distance matrix.
    """
    x = _checked(points, metric)
    if len(x) < 2:
        raise ValueError(f"There are {len(x)} points; a nearest other point needs at least two.")
    return _nearest(x, metric)


def partitions(points: Tensor, metric: Metric = "cosine") -> Tensor:
    """All partitions that FINCH finds, from the finest to the coarsest.

    With k¹ from `first_neighbours`, points i and j are adjacent if j = k¹(i), or k¹(j) = i, or k¹(i) = k¹(j) (FINCH,
    equation 1). The connected components are the first partition. The next one comes from the means of the clusters,
    always means of the original points, and so on. A partition into one cluster is left out, unless it is the first.

    Parameters
    ----------
    points
        Shape [n, D], floating point; n may be 0 (a class without images) or 1.
    metric
        As in `first_neighbours`.

    Returns
    -------
    Tensor
        Labels, int64 [levels, n] with levels >= 1, numbered by first occurrence. ``partitions(points)[-1]`` is the
        partition that the federated methods use. Fewer than two points give one level.

    Raises
    ------
    ValueError
        For another shape or type, values that are not finite, or an unknown metric.

    Notes
    -----
    The published code also stops where the number of clusters does not fall, or falls by one. Neither needs a rule:
    every cluster is joined with another one, so the number at least halves. For the same reason no cluster has a
    single point if n >= 2, and two or three points are one cluster.

    The order of the points matters only where different points are equally near, so that the lowest index decides
    (as in the published code): a point midway between two clusters, or, for the cosine, a vector of zeros, which
    goes with the first of the others. Equal points end in the same cluster and their order has no influence.
    """
    x = _checked(points, metric)
    if len(x) < 2:
        return torch.zeros(1, len(x), dtype=torch.long, device=x.device)
    levels = [_components(_nearest(x, metric))]
    while levels[-1].any():  # more than one cluster
        labels = levels[-1]
        levels.append(_components(_nearest(_means(x, labels), metric))[labels])
    return torch.stack(levels[:-1] or levels)


def finch_star(
    points: Tensor, weights: Tensor | None = None, metric: Metric = "cosine", *, weighted_mean: bool = False
) -> Clusters:
    """FINCH*: the clusters of the coarsest partition, each with the summed weight of its points (FedPLCC, equations 9, 10).

    The weights have no influence on who is in which cluster. Without weights, ``centres`` is what FPL and FedPLVM
    make of a class.

    Parameters
    ----------
    points
        Shape [n, D], floating point. Without points (a class without images) there are no clusters, and no error.
    weights
        Shape [n], how many images each point stands for; by default 1 each (equation 9).
    metric
        As in `first_neighbours`.
    weighted_mean
        Weight the points in the mean that is the centre of a cluster. By default a centre is the plain mean: the paper
        "clusters the vectors with FINCH and sums up the weights". Needs weights above zero.

    Returns
    -------
    Clusters
        ``centres`` [C, D] in the type of the points, ``weights`` [C] in the type of the given weights (whole numbers:
        int64, and then their sum is exactly that of the given ones), ``labels`` int64 [n], numbered by first occurrence.

    Raises
    ------
    ValueError
        As `partitions`; and for weights of another shape, not finite, or negative.
    """
    if weights is None:
        weights = torch.ones(points.shape[:1], dtype=torch.long, device=points.device)
    labels = partitions(points, metric)[-1]
    if weights.shape != labels.shape:
        raise ValueError(f"weights has the shape {list(weights.shape)}; it must be [{len(labels)}], one for each point.")
    if not (weights.isfinite() & (weights > 0 if weighted_mean else weights >= 0)).all():
        least = "above zero, as weighted_mean divides by their sum" if weighted_mean else "zero or more"
        raise ValueError(f"weights must be finite and {least}.")
    kind, exact = (weights.dtype, torch.double) if weights.is_floating_point() else (torch.long, torch.long)
    sums = weights.new_zeros(_count(labels), dtype=exact).index_add_(0, labels, weights.detach().to(exact))
    centres = _means(points.detach().double(), labels, weights.detach().double() if weighted_mean else None)
    return Clusters(centres.to(points.dtype), sums.to(kind), labels)


def _checked(points: Tensor, metric: str) -> Tensor:
    """The points in double precision, without a gradient; an error if they are not points."""
    if metric not in get_args(Metric):
        raise ValueError(f"Unknown metric {metric!r}; known: {', '.join(get_args(Metric))}.")
    if points.ndim != 2 or not points.shape[1] or not points.is_floating_point():
        raise ValueError(f"points is {points.dtype} {list(points.shape)}; it must be floating point [n, D] with D >= 1.")
    if not points.isfinite().all():
        raise ValueError("points holds values that are not finite (NaN or infinite).")
    return points.detach().double()


def _nearest(x: Tensor, metric: str) -> Tensor:
    """`first_neighbours` of two or more points in double precision."""
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


def _components(neighbour: Tensor) -> Tensor:
    """Connected components of the edges i - neighbour(i), int64 [n], numbered by first occurrence.

    The third clause of equation 1 joins points that share a neighbour; they are joined through it already. Following
    the neighbours from any point ends in the one cycle of its component (two mutual neighbours), so the lowest index on
    that cycle names the component. Jumps of doubled length get there in log2(n) steps.
    """
    index = torch.arange(len(neighbour), device=neighbour.device)
    lowest, jump = index, neighbour  # lowest index on the first 1, 2, 4, ... points of the path; where it goes on
    for _ in range(len(neighbour).bit_length()):
        lowest, jump = torch.minimum(lowest, lowest[jump]), jump[jump]
    name = lowest[jump]
    first = torch.full_like(index, len(index)).scatter_reduce(0, name, index, "amin")[name]
    return first.unique(return_inverse=True)[1]


def _count(labels: Tensor) -> int:
    return int(labels.max()) + 1 if len(labels) else 0


def _means(x: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of the points of each cluster, [C, D]."""
    weights = x.new_ones(len(x)) if weights is None else weights
    sums = x.new_zeros(_count(labels), x.shape[1]).index_add_(0, labels, x * weights[:, None])
    totals = x.new_zeros(len(sums)).index_add_(0, labels, weights)
    return sums / totals[:, None]
