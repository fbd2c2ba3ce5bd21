"""Class prototypes: sets of them, their means over clients, and FedAvg with prototypes on the wire.

A set is a dict of tensors, so that it can be sent as it is: ``vectors`` [P, D], and ``labels`` [P],
the class of each; where a method needs it, ``counts`` [P], how many images each stands for. A class
without a prototype is simply absent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.federation import Client, FedAvg, Message, Server
from fednb.models import Net

Prototypes = dict[str, Tensor]


def class_means(z: Tensor, y: Tensor) -> Prototypes:
    """Return the mean of z [n, D] for each class in y [n], in their order (FedProc, equation 5)."""
    return mean_by_class({"vectors": z, "labels": y, "counts": torch.ones_like(y)})


def mean_by_class(prototypes: Prototypes, weighted: bool = False) -> Prototypes:
    """Return one prototype per class, in their order: the mean of all that the set has of it.

    With ``weighted`` each vector has its count as its weight; counts are summed either way.
    """
    vectors = prototypes["vectors"]
    labels, place = prototypes["labels"].unique(return_inverse=True)

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(labels), *values.shape[1:]).index_add_(0, place, values)

    weights = prototypes["counts"].to(vectors.dtype) if weighted else vectors.new_ones(len(vectors))
    means = {"vectors": sums(vectors * weights[:, None]) / sums(weights)[:, None], "labels": labels}
    return means | ({"counts": sums(prototypes["counts"])} if "counts" in prototypes else {})


def join(sets: Sequence[Prototypes]) -> Prototypes:
    """Return all prototypes of several sets in one, one after the other."""
    return {name: torch.cat([one[name] for one in sets]) for name in sets[0]}


def select(prototypes: Prototypes, which: Tensor) -> Prototypes:
    """Return the prototypes at these places, or where this mask is true."""
    return {name: values[which] for name, values in prototypes.items()}


def updated(old: Prototypes, new: Prototypes) -> Prototypes:
    """Return the new prototypes, and the old ones of the classes of which there is no new one."""
    if not len(old["labels"]):
        return new
    return join([select(old, ~torch.isin(old["labels"], new["labels"])), new])


def pad_to(prototypes: Prototypes, capacity: int) -> Prototypes:
    """Return the set filled to ``capacity`` rows with zeros and label -1.

    A set of more rows is a `ValueError`.
    """
    missing = capacity - len(prototypes["labels"])
    if missing < 0:
        raise ValueError(f"There are {capacity - missing} prototypes, but rows for {capacity}.")
    filled = {
        name: F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing))
        for name, values in prototypes.items()
    }
    return filled | {"labels": F.pad(prototypes["labels"], (0, missing), value=-1)}


@dataclass
class WithPrototypes(FedAvg):
    """FedAvg whose clients also send what they know of each class, and get what becomes of it.

    A method overrides `local_prototypes`, `aggregate_prototypes` or `broadcast_prototypes`, and its
    loss uses ``context["prototypes"]``: the received set, padded to `capacity` rows so that every
    step has the same shapes.
    """

    def start(self, model: Net, num_clients: int) -> Server:
        """Return the server's first state, without a prototype."""
        weight = model.classifier.weight.detach()
        labels = weight.new_zeros(0, dtype=torch.long)
        none = {"vectors": weight.new_zeros(0, weight.shape[1]), "labels": labels}
        return super().start(model, num_clients) | {"prototypes": none}

    def broadcast(self, server: Server, client_id: int) -> Message:
        """Return what the server sends to a client, with `broadcast_prototypes`."""
        prototypes = self.broadcast_prototypes(server, client_id)
        return super().broadcast(server, client_id) | {"prototypes": prototypes}

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """Return the context of a round, with the received prototypes in `capacity` rows."""
        prototypes = pad_to(received["prototypes"], self.capacity(client, received))
        return super().prepare(client, received, t) | {"prototypes": prototypes}

    def capacity(self, client: Client, received: Message) -> int:
        """Return how many rows the received set is padded to: by default one per class."""
        return client.model.classifier.out_features

    def upload(self, client: Client, context: dict[str, Any]) -> Message:
        """Return what the client sends back after training, with `local_prototypes`."""
        return super().upload(client, context) | {"prototypes": self.local_prototypes(client)}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        """Return the server's next state, with `aggregate_prototypes`."""
        prototypes = self.aggregate_prototypes(server, uploads, t)
        return super().aggregate(server, uploads, t) | {"prototypes": prototypes}

    def local_prototypes(self, client: Client) -> Prototypes:
        """Return what a client tells of its classes: by default the mean representation of each."""
        means = class_means(*client.representations())
        return {"vectors": means["vectors"], "labels": means["labels"]}

    def aggregate_prototypes(self, server: Server, uploads: list[Message], t: int) -> Prototypes:
        """Return the next prototypes: by default means over clients with a class, or the old one."""
        means = mean_by_class(join([u["prototypes"] for u in uploads]))
        return updated(server["prototypes"], means)

    def broadcast_prototypes(self, server: Server, client_id: int) -> Prototypes:
        """Return what a client receives: by default all of the server's prototypes."""
        return server["prototypes"]
