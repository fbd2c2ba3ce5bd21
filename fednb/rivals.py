"""What FedProto is compared with: rivals that average other parts of a network, and other targets."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

from fednb import seeds
from fednb.errors import SettingsError, check
from fednb.federation import Client, FedAvg, Message, Phase, PositiveInt, Server, State, average
from fednb.models import Net
from fednb.prototypes import (
    Prototypes,
    WithPrototypes,
    class_means,
    join,
    mean_by_class,
    select,
    updated,
)

# --- methods that give a client, or a cluster of clients, a model of its own


@dataclass
class FeSEM(FedAvg):
    """Clustered federated learning: k-means over the clients' weights, one model per cluster (Xie et al. 2020)."""

    personal: ClassVar[bool] = True
    num_clusters: PositiveInt = 2  # clusters of clients

    def start(self, model: Net, num_clients: int) -> Server:
        state = super().start(model, num_clients)["model"]
        # nobody is assigned yet: all start from the common initial weights, as cluster 0
        models = {str(c): state for c in range(self.num_clusters)}
        return {"models": models, "cluster": torch.zeros(num_clients).long()}

    def broadcast(self, server: Server, client_id: int) -> Message:
        return {"model": server["models"][str(int(server["cluster"][client_id]))]}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        k = min(self.num_clusters, len(uploads))
        # from the last round's centres on; in the first round these are all the same
        carry_on = t and k == self.num_clusters
        begin: Any = _vectors(list(server["models"].values())) if carry_on else "k-means++"
        state = int(seeds.generator(server["seed"], "clusters", t).integers(2**31))
        means = KMeans(k, init=begin, n_init=1, random_state=state)
        found = means.fit(_vectors([u["model"] for u in uploads]))
        models, cluster = dict(server["models"]), server["cluster"].clone()
        for c in range(k):
            members = [u for u, label in zip(uploads, found.labels_, strict=True) if label == c]
            if members:  # a cluster that nobody is in keeps its model
                models[str(c)] = average([u["model"] for u in members], [1] * len(members))
                cluster[[u["client"] for u in members]] = c
        return server | {"models": models, "cluster": cluster}


def _vectors(states: list[State]) -> np.ndarray:
    """Return the floating-point entries of models as rows, float64 [m, P]."""
    rows = []
    for state in states:
        rows.append(torch.cat([v.flatten() for v in state.values() if v.is_floating_point()]))
    return torch.stack(rows).double().cpu().numpy()


@dataclass
class FedPer(FedAvg):
    """The representation is shared, the head is personal (Arivazhagan et al. 2019)."""

    personal: ClassVar[bool] = True
    # every linear layer, as FedProto's code, or the output layer alone
    private: Literal["linear", "classifier"] = "linear"

    def shared(self, name: str) -> bool:
        """Does this entry of the model travel?"""
        layers = ("classifier", "head", "fc") if self.private == "linear" else ("classifier",)
        return not any(part.startswith(layers) for part in name.split("."))


@dataclass
class FedRep(FedPer):
    """FedPer that trains one after the other: first the head, then the shared body (Collins et al. 2021)."""

    head_epochs: PositiveInt = 1  # epochs of the head before the body is trained

    def plan(self, client: Client, t: int) -> list[Phase]:
        head = Phase(self.head_epochs, lambda name: not self.shared(name))
        return [head, Phase(client.training.local_epochs, self.shared)]


# --- FedProto with another mean, other first weights, or other targets


@dataclass
class Variants(WithPrototypes):
    """Options of a method with prototypes, in notebook 04 of FedProto; without them it is the method itself."""

    weighted_prototypes: bool = (
        False  # a client's prototype counts as many times as it has images of the class
    )
    own_start: Literal[None, True] = (
        None  # True: first weights of the client's own (published code), not common ones
    )
    targets: Literal[None, "own", "blocks", "long blocks"] = None  # None: everybody's means

    def start(self, model: Net, num_clients: int) -> Server:
        server = super().start(model, num_clients)
        if "blocks" not in str(self.targets):
            return server
        num_classes, width = model.classifier.weight.shape
        few = f"targets={self.targets!r} needs a feature for each of {num_classes} classes, and the network has {width}"
        check(width >= num_classes, f"{few}: take a wider model.", SettingsError)
        blocks = torch.eye(num_classes).repeat(1, -(-width // num_classes))[:, :width]
        return server | {"blocks": blocks}  # class k: features k, k + K, ...

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        if self.own_start and "model" not in client.memory:
            client.model.load_state_dict(client.random_weights())
        if self.targets == "own":
            none = select(received["prototypes"], received["prototypes"]["labels"] < 0)
            received = received | {"prototypes": client.memory.get("means", none)}
        return super().prepare(client, received, t)

    def local_prototypes(self, client: Client) -> Prototypes:
        if self.weighted_prototypes:
            return class_means(*client.representations())
        return super().local_prototypes(client)

    def upload(self, client: Client, context: dict[str, Any]) -> Message:
        message = super().upload(client, context)
        if self.targets == "own":
            own = message["prototypes"]
            client.memory["means"] = {name: own[name] for name in ("vectors", "labels")}
        return message

    def aggregate_prototypes(self, server: Server, uploads: list[Message], t: int) -> Prototypes:
        new = mean_by_class(join([u["prototypes"] for u in uploads]), self.weighted_prototypes)
        new = updated(server["prototypes"], {name: new[name] for name in ("vectors", "labels")})
        if "blocks" not in server:
            return new
        length = new["vectors"].norm(dim=1, keepdim=True)
        vectors: Tensor = server["blocks"].to(length)[new["labels"]]
        is_long = self.targets == "long blocks"
        return new | {"vectors": length * F.normalize(vectors, dim=1) if is_long else vectors}
