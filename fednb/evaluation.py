"""Accuracy of global and personal models."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fednb.data import augment

if TYPE_CHECKING:
    from fednb.federation import Client, Federation


@torch.no_grad()
def correct(
    federation: "Federation", client: "Client", index: Tensor, *, training: bool = False
) -> dict[str, Tensor]:
    """Which test images a client gets right, as if it had just received the next broadcast (which is not counted).

    With ``training`` the index is one of training images, which are not augmented. Returns a boolean tensor [len(index)] per
    read-out of the method's ``predict``; of clients with test images of their own also ``local classes``, the first
    read-out with no other classes to choose from than those that the client has.
    """
    method, labels = federation.method, federation.labels if training else federation.test_labels
    absent = None if federation.test_parts is None else ~client.classes
    client = copy.copy(client)  # several threads may borrow the same client
    received = method.broadcast(federation.server, client.id)
    hits: dict[str, list[Tensor]] = {}
    with federation.lend_model(client):
        client.load(received)
        given = method.prepare(client, received, federation.rounds_done)
        client.model.eval()
        for part in index.split(250):
            if training:
                x = federation.inputs(part)
            else:
                x = augment.normalise(federation.test_images[part], *federation.constants)
            read_outs = method.predict(client.model, x, given)
            if absent is not None:
                read_outs["local classes"] = next(iter(read_outs.values())).masked_fill(
                    absent, -torch.inf
                )
            for name, scores in read_outs.items():
                hits.setdefault(name, []).append(scores.argmax(1) == labels[part])
    return {name: torch.cat(found) for name, found in hits.items()}


def evaluate(federation: "Federation") -> dict[str, Any]:
    """Test accuracy in percent: of the global model, or of each client's own.

    ``accuracy`` is the first read-out, ``accuracy/NAME`` the others. With personal models or test sets it is the mean over
    clients and comes with ``accuracy_std`` (over clients, ddof 0) and ``clients``, their list. With test groups (domains) it
    is the mean over groups and comes with ``groups``, of personal models the mean over clients in each. Where all clients
    share the test set and there are no groups, the same three with ``/own mix`` are of `own_mix`, of the first read-out.
    With held-out training images, ``validation`` is the (mean) accuracy on those.
    """
    clients, dataset, device = federation.clients, federation.dataset, federation.test_labels.device
    personal, own_tests = federation.method.personal, federation.test_parts is not None

    def hits_of(
        parts: Sequence[np.ndarray | Tensor], training: bool = False
    ) -> list[dict[str, Tensor]]:
        parts = [torch.as_tensor(part, device=device) for part in parts]
        return federation.map(
            lambda c, part: correct(federation, c, part, training=training),
            clients[: len(parts)],
            parts,
        )

    index = (
        torch.arange(len(federation.test_labels))
        if federation.test_index is None
        else federation.test_index
    )
    index = torch.as_tensor(index, device=device)
    if personal or own_tests:
        hits = hits_of(federation.test_parts if own_tests else [index] * len(clients))
    else:  # one model for all: evaluated once
        pieces = index.split(1000)  # not by workers: results must not depend on their number
        found = federation.map(lambda piece: correct(federation, clients[0], piece), pieces)
        hits = [{name: torch.cat([piece[name] for piece in found]) for name in found[0]}]
    groups = (
        None if own_tests or dataset.test_groups is None else dataset.test_groups.to(device)[index]
    )
    result: dict[str, Any] = {}
    for i, name in enumerate(hits[0]):
        suffix, right = f"/{name}" if i else "", [one[name] for one in hits]
        accuracies = [_percent(one) for one in right]
        if groups is not None:
            of_group = [
                [_percent(one[groups == g]) for one in right]
                for g in range(len(dataset.group_names))
            ]
            result[f"groups{suffix}"] = dict(
                zip(dataset.group_names, np.mean(of_group, 1).tolist(), strict=True)
            )
            accuracies = np.mean(of_group, 0).tolist()
        result |= (
            _over_clients(accuracies, suffix)
            if len(hits) > 1
            else {f"accuracy{suffix}": accuracies[0]}
        )
        if i == 0 and groups is None and not own_tests:
            result |= _over_clients(own_mix(federation, torch.stack(right), index), "/own mix")
    if held_out := list(federation.held_out):
        held_out *= len(clients) if personal and len(held_out) == 1 else 1
        found = hits_of(held_out, training=True)
        result["validation"] = 100 * float(
            np.mean([float(next(iter(one.values())).float().mean()) for one in found])
        )
    return result


def _percent(hits: Tensor) -> float:
    return 100 * float(hits.float().mean())


def _over_clients(accuracies: list[float], suffix: str) -> dict[str, Any]:
    mean, std = float(np.mean(accuracies)), float(np.std(accuracies))
    return {f"accuracy{suffix}": mean, f"accuracy_std{suffix}": std, f"clients{suffix}": accuracies}


def own_mix(federation: "Federation", hits: Tensor, index: Tensor) -> list[float]:
    """The accuracy in percent that each client can expect on images like its own: Σ_k p_i(k) acc_k.

    p_i(k) is the share of class k among client i's training images, and acc_k the accuracy on the test images of class k;
    ``hits``, boolean [models, n], of one model for all clients or one of each, says which of the test images ``index`` [n]
    are classified right. A class without test images is left out of the sum, and the other shares are scaled up.
    """
    labels, num_classes = federation.test_labels[index], federation.dataset.num_classes
    shares = torch.stack(
        [client.labels.bincount(minlength=num_classes) for client in federation.clients]
    ).double()
    images = labels.bincount(minlength=num_classes)
    of_class = hits.new_zeros(len(hits), num_classes, dtype=torch.double).index_add_(
        1, labels, hits.double()
    )
    shares = shares * (images > 0)
    right = (shares * of_class / images.clamp(min=1)).sum(1) / shares.sum(1)
    return (100 * right).tolist()
