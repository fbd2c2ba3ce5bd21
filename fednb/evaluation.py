"""Accuracy of global and personal models."""

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fednb.client import Client
from fednb.data import Dataset
from fednb.messages import Message, Server
from fednb.method import FedAvg

Hits = dict[str, Tensor]  # for each read-out, which of the images are classified right: boolean [n]
IMAGES_PER_CALL = 1000  # of a global model; not by workers: results must not depend on their number
IMAGES_PER_BATCH = 250


class Evaluated(Protocol):
    """What evaluation reads of a federation."""

    method: FedAvg
    dataset: Dataset
    clients: list[Client]
    server: Server
    rounds_done: int
    test_labels: Tensor
    test_parts: Sequence[np.ndarray] | None
    test_index: np.ndarray | None
    held_out: Sequence[np.ndarray]

    def hits(
        self, clients: Sequence[Client], parts: Sequence[Tensor], training: bool = False
    ) -> list[Hits]:
        """`correct`, of these clients, each on its part."""
        ...


def correct(
    federation: Evaluated, client: Client, index: Tensor, *, training: bool = False
) -> Hits:
    """Which test images ``index`` [n] a client classifies right, as if it had the next broadcast.

    That broadcast is not counted. With ``training`` the index is one of training images, which are
    not augmented. There is an entry for each read-out of the method's ``predict``; of clients with
    test images of their own also ``local classes``, the first read-out with no other classes to
    choose from than those that the client has.
    """
    method, t = federation.method, federation.rounds_done
    received = method.broadcast(federation.server, client.id)
    local_classes = federation.test_parts is not None
    return hits_of_client(method, client, received, t, index, training, local_classes)


@torch.no_grad()
def hits_of_client(
    method: FedAvg,
    client: Client,
    received: Message,
    t: int,
    index: Tensor,
    training: bool,
    local_classes: bool,
) -> Hits:
    """`correct`, where the client is: it has received the broadcast of round ``t``."""
    workspace = client.workspace
    labels = workspace.labels if training else workspace.test_labels
    inputs = workspace.inputs if training else workspace.test_inputs
    client = copy.copy(client)  # several threads may borrow the same client
    found: dict[str, list[Tensor]] = {}
    with workspace.lend_model(client):
        client.load(received)
        given = method.prepare(client, received, t)
        model = client.model.eval()
        for part in index.split(IMAGES_PER_BATCH):
            read_outs = method.predict(model, inputs(part), given)
            if local_classes:
                first = next(iter(read_outs.values()))
                read_outs["local classes"] = first.masked_fill(~client.classes, -torch.inf)
            for name, scores in read_outs.items():
                found.setdefault(name, []).append(scores.argmax(1) == labels[part])
    return {name: torch.cat(hits) for name, hits in found.items()}


def evaluate(federation: Evaluated) -> dict[str, Any]:
    """Test accuracy in percent: of the global model, or of each client's own.

    ``accuracy`` is the first read-out, ``accuracy/NAME`` the others. With personal models or test
    sets it is the mean over clients and comes with ``accuracy_std`` (over clients, ddof 0) and
    ``clients``, their list. With test groups (domains) it is the mean over groups and comes with
    ``groups``, of personal models the mean over clients in each. Where all clients share the test
    set and there are no groups, the same three with ``/own mix`` are of `own_mix`, of the first
    read-out. With held-out training images, ``validation`` is the (mean) accuracy on those.
    """
    dataset, device = federation.dataset, federation.test_labels.device
    index = _as_index(federation.test_index, len(federation.test_labels), device)
    hits = _test_hits(federation, index)
    has_own_tests = federation.test_parts is not None
    groups = None
    if dataset.test_groups is not None and not has_own_tests:
        groups = dataset.test_groups.to(device)[index]

    result: dict[str, Any] = {}
    first_read_out = next(iter(hits[0]))
    for name in hits[0]:
        suffix = "" if name == first_read_out else f"/{name}"
        of_models = [hits_of_model[name] for hits_of_model in hits]
        accuracies = [_percent(of_model) for of_model in of_models]
        if groups is not None:
            by_group = [
                [_percent(of_model[groups == group]) for of_model in of_models]
                for group in range(len(dataset.group_names))
            ]
            means = np.mean(by_group, 1).tolist()
            result[f"groups{suffix}"] = dict(zip(dataset.group_names, means, strict=True))
            accuracies = np.mean(by_group, 0).tolist()
        if len(hits) > 1:
            result |= _over_clients(accuracies, suffix)
        else:
            result[f"accuracy{suffix}"] = accuracies[0]
        if name == first_read_out and groups is None and not has_own_tests:
            result |= _over_clients(own_mix(federation, torch.stack(of_models), index), "/own mix")
    if len(federation.held_out):
        result["validation"] = _validation(federation)
    return result


def _as_index(chosen: np.ndarray | None, n: int, device: torch.device) -> Tensor:
    if chosen is None:
        return torch.arange(n, device=device)
    return torch.as_tensor(chosen, device=device)


def _hits(
    federation: Evaluated,
    clients: Sequence[Client],
    parts: Sequence[np.ndarray | Tensor],
    training: bool = False,
) -> list[Hits]:
    """`Evaluated.hits`, of parts that may be of NumPy."""
    device = federation.test_labels.device
    indices = [torch.as_tensor(part, device=device) for part in parts]
    return federation.hits(clients, indices, training)


def _test_hits(federation: Evaluated, index: Tensor) -> list[Hits]:
    """Of every client where models or test images differ, else of the global model alone."""
    clients = federation.clients
    if federation.test_parts is not None:
        return _hits(federation, clients, federation.test_parts)
    if federation.method.personal:
        return _hits(federation, clients, [index] * len(clients))
    pieces = index.split(IMAGES_PER_CALL)
    hits = _hits(federation, [clients[0]] * len(pieces), pieces)
    return [{name: torch.cat([piece[name] for piece in hits]) for name in hits[0]}]


def _validation(federation: Evaluated) -> float:
    """The mean accuracy on held-out training images, of the first read-out."""
    clients, parts = federation.clients, list(federation.held_out)
    if len(parts) == 1 and federation.method.personal:
        # one set for all: every personal model is tried on it
        parts = parts * len(clients)
    if len(parts) == 1:  # a global model is tried once
        clients = clients[:1]
    hits = _hits(federation, clients, parts, training=True)
    accuracies = [float(next(iter(of_model.values())).float().mean()) for of_model in hits]
    return 100 * float(np.mean(accuracies))


def _percent(hits: Tensor) -> float:
    return 100 * float(hits.float().mean())


def _over_clients(accuracies: list[float], suffix: str) -> dict[str, Any]:
    return {
        f"accuracy{suffix}": float(np.mean(accuracies)),
        f"accuracy_std{suffix}": float(np.std(accuracies)),
        f"clients{suffix}": accuracies,
    }


def own_mix(federation: Evaluated, hits: Tensor, index: Tensor) -> list[float]:
    """The accuracy in percent that each client can expect on images like its own: Σ_k p_i(k) acc_k.

    p_i(k) is the share of class k among client i's training images, and acc_k the accuracy on the
    test images of class k; ``hits``, boolean [models, n], of one model for all clients or one of
    each, says which of the test images ``index`` [n] are classified right. A class without test
    images is left out of the sum, and the other shares are scaled up.
    """
    labels = federation.test_labels[index]
    num_classes = federation.dataset.num_classes
    counts = [client.labels.bincount(minlength=num_classes) for client in federation.clients]
    shares = torch.stack(counts).double()
    images = labels.bincount(minlength=num_classes)
    hits_of_class = hits.new_zeros(len(hits), num_classes, dtype=torch.double)
    hits_of_class.index_add_(1, labels, hits.double())
    shares = shares * (images > 0)
    expected = (shares * hits_of_class / images.clamp(min=1)).sum(1) / shares.sum(1)
    return (100 * expected).tolist()
