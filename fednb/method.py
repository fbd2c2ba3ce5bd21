"""FedAvg, the base of all methods: each overrides some of its hooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednb.client import Client, Phase
from fednb.hyperparameters import check_fields
from fednb.messages import Message, Server, State, average
from fednb.models import Net


class Exchange(Protocol):
    """What a round needs of a federation: the way across to its clients and back."""

    def exchange(self, server: Server, clients: Sequence[Client], t: int) -> list[Message]:
        """Send each client its broadcast, let it work, return the uploads."""
        ...


@dataclass
class FedAvg:
    """Federated averaging (McMahan et al. 2017), and the default answers of every other method.

    A subclass is a dataclass whose fields are its hyperparameters; one that is annotated with a
    type such as `Positive`, or with a ``Literal``, is checked. `loss` and `predict` are pure
    functions of tensors, with no branch on data, so that they run eagerly, compiled, batched over
    clients, or in a CUDA graph.
    """

    # True: clients end with models of their own, which are evaluated one by one
    personal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, model: Net, num_clients: int) -> Server:
        """The server's first state."""
        return {"model": self._shared_of(model.state())}

    def shared(self, name: str) -> bool:
        """Does this entry of the model travel?"""
        return True

    def broadcast(self, server: Server, client_id: int) -> Message:
        """What the server sends to a client. Pure; draws nothing."""
        return {"model": server["model"]}

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """What `loss` and `predict` may read in a round. The model is loaded; writes nothing."""
        return {}

    def plan(self, client: Client, t: int) -> list[Phase]:
        """The local phases of round ``t``."""
        return [Phase(client.training.local_epochs)]

    def optimizer(
        self, client: Client, parameters: list[nn.Parameter], given: dict[str, Any]
    ) -> torch.optim.Optimizer:
        """A new optimiser for each client, round and phase, as in the papers' code."""
        s = client.training
        return torch.optim.SGD(
            parameters, s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
        )

    def loss(self, model: Net, x: Tensor, y: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Scalar terms on a batch x [B, C, H, W], y [B]; each is logged, their sum minimised."""
        return {"cross_entropy": F.cross_entropy(model(x).logits, y)}

    def upload(self, client: Client, given: dict[str, Any]) -> Message:
        """What the client sends back after training; here its memory is written."""
        state = client.model.state()
        sent = self._shared_of(state)
        if kept := {name: value for name, value in state.items() if name not in sent}:
            client.memory["model"] = kept
        return {"model": sent, "num_samples": torch.tensor(client.num_samples)}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        """The server's next state.

        All random draws of the server happen here, keyed by ``server["seed"]``. Each upload also
        holds the number of the client that it comes from, as ``"client"``.
        """
        weights = [int(u["num_samples"]) for u in uploads]
        return {**server, "model": average([u["model"] for u in uploads], weights)}

    def predict(self, model: Net, x: Tensor, given: dict[str, Any]) -> dict[str, Tensor]:
        """Named read-outs [B, K] whose largest value is the prediction; the first is reported."""
        return {"classifier": model(x).logits}

    def round(self, federation: Exchange, server: Server, clients: list[Client], t: int) -> Server:
        """One communication round."""
        return self.aggregate(server, federation.exchange(server, clients, t), t)

    def _shared_of(self, state: State) -> State:
        return {name: value for name, value in state.items() if self.shared(name)}
