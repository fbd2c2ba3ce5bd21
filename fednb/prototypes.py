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
    """The mean of z [n, D] for each class in y [n], in their order (FedProc, equation 5)."""
    return mean_by_class({"vectors": z, "labels": y, "counts": torch.ones_like(y)})


def mean_by_class(prototypes: Prototypes, weighted: bool = False) -> Prototypes:
    """One prototype per class, the mean of all that the set has of it, in the order of the classes.

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
    """All prototypes of several sets in one, one after the other."""
    return {name: torch.cat([one[name] for one in sets]) for name in sets[0]}


def select(prototypes: Prototypes, which: Tensor) -> Prototypes:
    """The prototypes at these places, or where this mask is true."""
    return {name: values[which] for name, values in prototypes.items()}


def updated(old: Prototypes, new: Prototypes) -> Prototypes:
    """The new prototypes, and the old ones of the classes of which there is no new one."""
    if not len(old["labels"]):
        return new
    return join([select(old, ~torch.isin(old["labels"], new["labels"])), new])


def padded(prototypes: Prototypes, capacity: int) -> Prototypes:
    """The set filled to ``capacity`` rows with zeros and label -1; more rows are a `ValueError`."""
    missing = capacity - len(prototypes["labels"])
    if missing < 0:
        raise ValueError(f"There are {capacity - missing} prototypes, but room for {capacity}.")
    filled = {
        name: F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing))
        for name, values in prototypes.items()
    }
    return filled | {"labels": F.pad(prototypes["labels"], (0, missing), value=-1)}


@dataclass
class WithPrototypes(FedAvg):
    """FedAvg whose clients also send what they know of each class, and get what becomes of it.

    A method overrides `summary`, `merge` or `sent`, and its loss uses ``given["prototypes"]``: the
    received set, padded to `room` rows so that every step has the same shapes.
    """

    def start(self, model: Net, num_clients: int) -> Server:
        weight = model.classifier.weight.detach()
        labels = weight.new_zeros(0, dtype=torch.long)
        none = {"vectors": weight.new_zeros(0, weight.shape[1]), "labels": labels}
        return super().start(model, num_clients) | {"prototypes": none}

    def broadcast(self, server: Server, client_id: int) -> Message:
        return super().broadcast(server, client_id) | {"prototypes": self.sent(server, client_id)}

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        prototypes = padded(received["prototypes"], self.room(client, received))
        return super().prepare(client, received, t) | {"prototypes": prototypes}

    def room(self, client: Client, received: Message) -> int:
        """How many rows the received set is padded to: by default one per class."""
        return client.model.classifier.out_features

    def upload(self, client: Client, context: dict[str, Any]) -> Message:
        return super().upload(client, context) | {"prototypes": self.summary(client)}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        merged = self.merge(server, uploads, t)
        return super().aggregate(server, uploads, t) | {"prototypes": merged}

    def summary(self, client: Client) -> Prototypes:
        """What a client tells of its classes: by default the mean representation of each."""
        means = class_means(*client.representations())
        return {"vectors": means["vectors"], "labels": means["labels"]}

    def merge(self, server: Server, uploads: list[Message], t: int) -> Prototypes:
        """The next prototypes: by default means over the clients with a class, or the old one."""
        means = mean_by_class(join([u["prototypes"] for u in uploads]))
        return updated(server["prototypes"], means)

    def sent(self, server: Server, client_id: int) -> Prototypes:
        """What a client receives: by default all of the server's prototypes."""
        return server["prototypes"]
