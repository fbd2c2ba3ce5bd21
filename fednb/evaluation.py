"""Accuracy of global and personal models: first who is right, then measures of that."""

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fednb.client import Client

if TYPE_CHECKING:
    from fednb.federation import Federation

# by read-out: which of n images a model classifies right, boolean [n]
Correct = dict[str, Tensor]
IMAGES_PER_CALL = 1000  # of a global model; not by workers: results must not depend on their number
IMAGES_PER_BATCH = 250


# --- who is right


@torch.no_grad()
def correct(
    federation: "Federation", client: Client, index: Tensor, *, training: bool = False
) -> Correct:
    """Return which images a client classifies right, as if it had the next broadcast (not counted).

    ``index`` [n] is of test images, or with ``training`` of training images, which are not
    augmented. There is an entry for each read-out of the method's ``predict``; of clients with test
    images of their own also ``local classes``, the first read-out with no other classes to choose
    from than those that the client has.
    """
    images, method = federation.images, federation.method
    labels = images.labels if training else images.test_labels
    inputs = images.inputs if training else images.test_inputs
    received = method.broadcast(federation.server, client.id)
    client = copy.copy(client)  # several threads may ask the same client
    right: dict[str, list[Tensor]] = {}
    with federation.at_work(client):
        client.load(received)
        context = method.prepare(client, received, federation.rounds_done)
        model = client.model.eval()
        for batch in index.split(IMAGES_PER_BATCH):
            scores = method.predict(model, inputs(batch), context)
            if federation.test_parts is not None:
                first = next(iter(scores.values()))
                scores["local classes"] = first.masked_fill(~client.classes, -torch.inf)
            for name, values in scores.items():
                right.setdefault(name, []).append(values.argmax(1) == labels[batch])
    return {name: torch.cat(batches) for name, batches in right.items()}


def correct_on_parts(
    federation: "Federation",
    clients: Sequence[Client],
    parts: Sequence[np.ndarray | Tensor],
    training: bool = False,
) -> list[Correct]:
    """Return `correct` of each client on its part, clients side by side."""
    indices = [torch.as_tensor(part, device=federation.images.device) for part in parts]

    def one(client: Client, index: Tensor) -> Correct:
        return correct(federation, client, index, training=training)

    return federation.map(one, clients, indices)


def correct_on_tests(federation: "Federation", index: Tensor) -> list[Correct]:
    """Return `correct` of each model: of all clients', or of the global model alone.

    Every client has one where models are personal or test images differ. ``index`` [n] is of the
    test images that are for all.
    """
    clients = federation.clients
    if federation.test_parts is not None:
        return correct_on_parts(federation, clients, federation.test_parts)
    if federation.method.personal:
        return correct_on_parts(federation, clients, [index] * len(clients))
    pieces = index.split(IMAGES_PER_CALL)
    right = correct_on_parts(federation, clients[:1] * len(pieces), pieces)
    return [{name: torch.cat([piece[name] for piece in right]) for name in right[0]}]


# --- measures of that


def evaluate(federation: "Federation") -> dict[str, Any]:
    """Return test accuracies in percent: of the global model, or of each client's own.

    ``accuracy`` is of the first read-out, ``accuracy/NAME`` of another. With personal models or
    test sets it is the mean `over_clients`, and ``accuracy_std`` and ``clients`` come with it. With
    test groups (domains) it is the mean over groups and comes with ``groups``, of personal models
    the mean over clients in each. Where all clients share the test set and there are no groups, the
    same with ``/own mix`` is of `own_mix`, of the first read-out. With held-out training images,
    ``validation`` is the (mean) accuracy on those.
    """
    dataset, images = federation.dataset, federation.images
    index = torch.arange(len(images.test_labels), device=images.device)
    if federation.test_index is not None:
        index = torch.as_tensor(federation.test_index, device=images.device)
    models = correct_on_tests(federation, index)
    is_shared = federation.test_parts is None  # the test set
    groups = None
    if dataset.test_groups is not None and is_shared:
        groups = dataset.test_groups.to(images.device)[index]

    result: dict[str, Any] = {}
    first_read_out = next(iter(models[0]))
    for name in models[0]:
        suffix = "" if name == first_read_out else f"/{name}"
        right = [model[name] for model in models]
        accuracies = [percent(of_model) for of_model in right]
        if groups is not None:
            by_group = accuracies_by_group(right, groups, len(dataset.group_names))
            means = np.mean(by_group, axis=1).tolist()
            result[f"groups{suffix}"] = dict(zip(dataset.group_names, means, strict=True))
            accuracies = np.mean(by_group, axis=0).tolist()
        if len(models) > 1:
            result |= over_clients(accuracies, suffix)
        else:
            result[f"accuracy{suffix}"] = accuracies[0]
        if name == first_read_out and groups is None and is_shared:
            expected = own_mix(federation, torch.stack(right), index)
            result |= over_clients(expected, "/own mix")
    if len(federation.held_out):
        result["validation"] = validation_accuracy(federation)
    return result


def percent(right: Tensor) -> float:
    """Return how many of boolean [n] are true, in percent; NaN of none."""
    return 100 * float(right.float().mean())


def accuracies_by_group(right: Sequence[Tensor], groups: Tensor, num_groups: int) -> np.ndarray:
    """Return accuracies in percent [groups, models] of what each model has right, boolean [n].

    ``groups`` [n] is the number of each image's group.
    """
    rows = []
    for group in range(num_groups):
        is_member = groups == group
        rows.append([percent(of_model[is_member]) for of_model in right])
    return np.array(rows)


def over_clients(accuracies: Sequence[float], suffix: str = "") -> dict[str, Any]:
    """Return the mean and standard deviation (ddof 0) over clients, and the list ``clients``.

    A client that no image counts for has NaN: it is None in the list and left out of the mean, and
    ``clients_counted`` says how many the mean is of.
    """
    known = [accuracy for accuracy in accuracies if not math.isnan(accuracy)]
    result: dict[str, Any] = {
        f"accuracy{suffix}": float(np.mean(known)) if known else None,
        f"accuracy_std{suffix}": float(np.std(known)) if known else None,
        f"clients{suffix}": [None if math.isnan(value) else value for value in accuracies],
    }
    if len(known) < len(accuracies):
        result[f"clients_counted{suffix}"] = len(known)
    return result


def own_mix(federation: "Federation", right: Tensor, index: Tensor) -> list[float]:
    """Return what accuracy in percent each client can expect on images like its own: Σ_k p_i(k) acc_k.

    p_i(k) is the share of class k among client i's training images, and acc_k the accuracy on the
    test images of class k; ``right``, boolean [models, n], of one model for all clients or one of
    each, says which of the test images ``index`` [n] are classified right. A class without test
    images is left out of the sum, and the other shares are scaled up; a client with no other
    classes has NaN.
    """
    labels = federation.images.test_labels[index]
    num_classes = federation.images.num_classes
    counts = [client.labels.bincount(minlength=num_classes) for client in federation.clients]
    num_tests = labels.bincount(minlength=num_classes)
    num_right = right.new_zeros(len(right), num_classes, dtype=torch.double)
    num_right.index_add_(1, labels, right.double())
    shares = torch.stack(counts).double() * (num_tests > 0)
    expected = (shares * num_right / num_tests.clamp(min=1)).sum(1) / shares.sum(1)
    return (100 * expected).tolist()


def validation_accuracy(federation: "Federation") -> float:
    """Return the mean accuracy in percent on held-out training images, of the first read-out."""
    clients, parts = federation.clients, list(federation.held_out)
    if len(parts) == 1:  # for all: a global model is tried once on it, or every personal one
        if not federation.method.personal:
            clients = clients[:1]
        parts = parts * len(clients)
    models = correct_on_parts(federation, clients, parts, training=True)
    accuracies = [float(next(iter(model.values())).float().mean()) for model in models]
    return 100 * float(np.mean(accuracies))
