"""FedAvg, the base of all methods: each overrides some of its hooks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le, Lt
from torch import Tensor, nn

from fednb.client import Client, Phase
from fednb.errors import check_fields
from fednb.messages import Message, Server, State, average
from fednb.models import Net

if TYPE_CHECKING:
    from fednb.federation import Federation

# of hyperparameters, where pydantic has no name: from 0 to 1, and below 1
Fraction = Annotated[float, Ge(0), Le(1)]
BelowOne = Annotated[float, Ge(0), Lt(1)]


@dataclass
class FedAvg:
    """Federated averaging (McMahan et al. 2017), and the default answers of every other method.

    A subclass is a dataclass whose fields are its hyperparameters. A value that a field's type does
    not allow, such as -1 for a ``NonNegativeFloat`` of pydantic, is a `SettingsError`. `loss` and `predict` are pure
    functions of tensors, with no branch on data, so that they run eagerly, compiled, batched over
    clients, or in a CUDA graph.
    """

    # True: clients end with models of their own, which are evaluated one by one
    personal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    # --- on the server

    def start(self, model: Net, num_clients: int) -> Server:
        """Return the server's first state."""
        return {"model": self._shared_of(model.state())}

    def broadcast(self, server: Server, client_id: int) -> Message:
        """Return what the server sends to a client. Pure; draws nothing."""
        return {"model": server["model"]}

    def aggregate(self, server: Server, uploads: list[Message], t: int) -> Server:
        """Return the server's next state: the mean of the models, weighted by ``num_samples``.

        All random draws of the server happen here, keyed by ``server["seed"]``. Each upload also
        holds the number of the client that it comes from, as ``"client"``.
        """
        weights = [float(upload["num_samples"]) for upload in uploads]
        return {**server, "model": average([upload["model"] for upload in uploads], weights)}

    def round(
        self, federation: "Federation", server: Server, clients: list[Client], t: int
    ) -> Server:
        """Make one communication round; return the server's next state."""
        return self.aggregate(server, federation.exchange(server, clients, t), t)

    # --- on a client

    def shared(self, name: str) -> bool:
        """Tell whether this entry of the model travels."""
        return True

    def prepare(self, client: Client, received: Message, t: int) -> dict[str, Any]:
        """Return the context of a round: all that `loss` and `predict` may read beside a batch.

        The client's model is loaded. Writes nothing.
        """
        return {}

    def plan(self, client: Client, t: int) -> list[Phase]:
        """Return the local phases of round ``t``."""
        return [Phase(client.training.local_epochs)]

    def optimizer(
        self, client: Client, parameters: list[nn.Parameter], context: dict[str, Any]
    ) -> torch.optim.Optimizer:
        """Return a new optimiser for each client, round and phase, as in the papers' code."""
        s = client.training
        return torch.optim.SGD(
            parameters, s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
        )

    def loss(self, model: Net, x: Tensor, y: Tensor, context: dict[str, Any]) -> dict[str, Tensor]:
        """Return scalar terms of a batch x [B, C, H, W], y [B]: each is logged, their sum minimised."""
        return {"cross_entropy": F.cross_entropy(model(x).logits, y)}

    def upload(self, client: Client, context: dict[str, Any]) -> Message:
        """Return what the client sends back after training; here its memory is written."""
        state = client.model.state()
        sent = self._shared_of(state)
        kept = {name: value for name, value in state.items() if name not in sent}
        if kept:
            client.memory["model"] = kept
        return {"model": sent, "num_samples": torch.tensor(client.num_samples)}

    def predict(self, model: Net, x: Tensor, context: dict[str, Any]) -> dict[str, Tensor]:
        """Return scores [B, K] by read-out: the largest is the prediction, the first is reported."""
        return {"classifier": model(x).logits}

    def _shared_of(self, state: State) -> State:
        return {name: value for name, value in state.items() if self.shared(name)}
