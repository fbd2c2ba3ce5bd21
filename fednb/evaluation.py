"""Accuracy of global and personal models, and what is read off a curve of accuracies."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fednb.data import augment

if TYPE_CHECKING:
    from fednb.federation import Client, Federation


@torch.no_grad()
def correct(
    federation: Federation, client: Client, index: Tensor, *, training: bool = False, batch: int = 250
) -> dict[str, Tensor]:
    """Which test images a client gets right, as if it had just received the next broadcast (which is not counted).

    With ``training`` the index is one of training images, which are not augmented.
    Returns one boolean tensor [len(index)] per read-out of the method's ``predict``; of clients with test images of their
    own also ``local classes``, the first read-out with no other classes to choose from than those that the client has.
    """
    method, t = federation.method, federation.rounds_done
    client = copy.copy(client)  # several threads may borrow the same client
    received = method.broadcast(federation.server, client.id)
    hits: dict[str, list[Tensor]] = {}
    with federation.lend_model(client):
        client.load(received)
        given = method.prepare(client, received, t)
        client.model.eval()
        absent = None if federation.test_parts is None else ~client.classes
        labels = federation.labels if training else federation.test_labels
        plain = federation.plain_batches(index, batch) if training else _test_batches(federation, index, batch)
        for part, x in zip(index.split(batch), plain, strict=True):
            read_outs = method.predict(client.model, x, given)
            if absent is not None:
                read_outs["local classes"] = next(iter(read_outs.values())).masked_fill(absent, -torch.inf)
            for name, scores in read_outs.items():
                hits.setdefault(name, []).append(scores.argmax(1) == labels[part])
    return {name: torch.cat(parts) for name, parts in hits.items()}


def _test_batches(federation: Federation, index: Tensor, batch: int) -> Iterator[Tensor]:
    for part in index.split(batch):
        yield augment.normalise(federation.test_images[part], *federation.constants)


def evaluate(federation: Federation) -> dict[str, Any]:
    """Test accuracy in percent: of the global model, or of each client's own.

    Returns
    -------
    dict
        ``accuracy`` is the first read-out, ``accuracy/NAME`` the others. With personal models or test sets
        it is the mean over clients and comes with ``accuracy_std`` (over clients, ddof 0) and ``clients``, their list.
        With test groups (domains) it is the mean over groups and comes with ``groups``, of personal models the mean over
        clients in each group. Where the federation has a ``test_index``, only those test images count.
        Where all clients share the test set and there are no groups, ``accuracy/own mix``, ``accuracy_std/own mix`` and
        ``clients/own mix`` are the same for `own_mix`, of the first read-out.
        With held-out training images, ``validation`` is the (mean) accuracy on those.
    """
    dataset, clients = federation.dataset, federation.clients
    everything = torch.arange(len(federation.test_labels), device=federation.test_labels.device)
    if federation.test_index is not None:
        everything = everything[torch.as_tensor(federation.test_index, device=everything.device)]
    if federation.test_parts is not None:
        own = [torch.as_tensor(part, device=everything.device) for part in federation.test_parts]
    else:
        own = [everything for _ in clients]
    if federation.method.personal or federation.test_parts is not None:
        per_client = federation.map(lambda c: correct(federation, c, own[c.id]), clients)
    else:  # one model for all: evaluated once
        pieces = everything.split(1000)  # not by workers: results must not depend on their number
        found = federation.map(lambda piece: correct(federation, clients[0], piece), pieces)
        per_client = [{name: torch.cat([f[name] for f in found]) for name in found[0]}]
    grouped = dataset.test_groups is not None and federation.test_parts is None
    groups = dataset.test_groups.to(everything.device)[everything] if grouped else None
    num_groups = len(dataset.group_names)
    result: dict[str, Any] = {}
    for i, name in enumerate(per_client[0]):
        accuracies = [100 * float(hits[name].float().mean()) for hits in per_client]
        suffix = "" if i == 0 else f"/{name}"
        if groups is not None:
            of_group = [[100 * float(h[name][groups == g].float().mean()) for h in per_client] for g in range(num_groups)]
            result[f"groups{suffix}"] = dict(zip(dataset.group_names, np.mean(of_group, 1).tolist(), strict=True))
            accuracies = np.mean(of_group, 0).tolist()
        result[f"accuracy{suffix}"] = float(np.mean(accuracies))
        if len(accuracies) > 1:
            result[f"accuracy_std{suffix}"] = float(np.std(accuracies))
            result[f"clients{suffix}"] = accuracies
        if i == 0 and federation.test_parts is None and groups is None:
            mixed = own_mix(federation, torch.stack([hits[name] for hits in per_client]), everything)
            result |= {"accuracy/own mix": float(np.mean(mixed)), "accuracy_std/own mix": float(np.std(mixed))}
            result["clients/own mix"] = mixed
    if len(federation.held_out):
        index = [torch.as_tensor(part, device=everything.device) for part in federation.held_out]
        judged = clients if federation.method.personal or len(index) > 1 else clients[:1]
        pairs = list(zip(judged, index if len(index) > 1 else index * len(judged), strict=True))
        found = federation.map(lambda p: next(iter(correct(federation, *p, training=True).values())), pairs)
        result["validation"] = 100 * float(np.mean([float(hits.float().mean()) for hits in found]))
    return result


def own_mix(federation: Federation, hits: Tensor, index: Tensor) -> list[float]:
    """The accuracy in percent that each client can expect on images like its own: Σ_k p_i(k) acc_k.

    Parameters
    ----------
    hits
        Which test images are classified right, boolean [models, n]: one model for all clients, or one of each.
    index
        Those test images, [n].

    Returns
    -------
    list of float
        With p_i(k) the share of class k among client i's training images and acc_k the accuracy on the test images of
        class k. A class without test images is left out of the sum, and the other shares are scaled up.
    """
    labels, num_classes = federation.test_labels[index], federation.dataset.num_classes
    shares = torch.stack([client.labels.bincount(minlength=num_classes) for client in federation.clients]).double()
    images = labels.bincount(minlength=num_classes)
    of_class = hits.new_zeros(len(hits), num_classes, dtype=torch.double).index_add_(1, labels, hits.double())
    shares = shares * (images > 0)
    right = (shares * of_class / images.clamp(min=1)).sum(1) / shares.sum(1)
    return (100 * right).tolist()


def last(accuracies: Sequence[float]) -> float:
    """Accuracy after the last round: what the tables report."""
    return float(accuracies[-1])


# Below, None stands for a round that was not evaluated.


def _known(accuracies: Sequence[float | None]) -> list[float]:
    return [accuracy for accuracy in accuracies if accuracy is not None]


def best(accuracies: Sequence[float | None]) -> float:
    """Best accuracy of any round. Chosen on the test set, so an upper bound rather than a result."""
    return float(max(_known(accuracies)))


def mean_of_last(accuracies: Sequence[float | None], n: int = 5) -> float:
    """Mean of the last ``n`` rounds that were evaluated: less noise than the last one."""
    return float(np.mean(_known(accuracies)[-n:]))


def rounds_to(accuracies: Sequence[float | None], target: float) -> int | None:
    """First round (from 1) that was evaluated and whose accuracy reaches ``target`` percent, or None."""
    reached = np.flatnonzero(np.asarray(accuracies, float) >= target)  # None becomes NaN, which reaches nothing
    return int(reached[0]) + 1 if len(reached) else None
