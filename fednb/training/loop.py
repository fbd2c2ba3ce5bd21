"""The plain loop: one client, one SGD step after the other."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from fednb.client import Client
from fednb.method import FedAvg
from fednb.workspace import Batch


def sgd_steps(
    method: FedAvg, client: Client, given: dict[str, Any], batches: Iterable[Batch]
) -> None:
    """Train the client's model: one SGD step for each batch, by a new optimiser.

    The client counts the steps, and sums each loss term over them.
    """
    model, workspace = client.model, client.workspace
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = method.optimizer(client, trained, given)
    for index, draws in batches:
        terms = method.loss(model, workspace.inputs(index, draws), workspace.labels[index], given)
        optimizer.zero_grad()
        total_loss(terms).backward()
        optimizer.step()
        client.steps += 1
        add_losses(client, terms)


def total_loss(terms: dict[str, Tensor]) -> Tensor:
    """The sum of a loss's terms, which is what a step minimises."""
    # of no terms it would be 0, but a loss has some
    return sum(terms.values())  # type: ignore[return-value]


def add_losses(client: Client, terms: dict[str, Tensor]) -> None:
    """Add the terms of steps to the client's sums, which stay on the device."""
    for name, value in terms.items():
        client.losses[name] = client.losses.get(name, 0) + value.detach()
