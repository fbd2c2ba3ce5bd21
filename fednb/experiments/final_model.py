"""The model that a run ends with, kept beside its record for whoever asks for it."""

from pathlib import Path
from typing import Any

import torch

from fednb import models
from fednb.errors import RunError
from fednb.experiments import checkpoints
from fednb.experiments.settings import Settings
from fednb.federation import Federation
from fednb.models import Net


def path_of(record: Path) -> Path:
    """Where the final model of the run with this record is."""
    return record.with_suffix(".pt")


def save(federation: Federation, settings: Settings, record: Path) -> None:
    """Write the weights that a federation has come to beside the record.

    They are those that are evaluated: of the global model, or of each client's own. A `RunError`
    if they cannot be written.
    """
    dataset = federation.dataset
    content: dict[str, Any] = {
        "shape": tuple(dataset.images.shape[1:]),  # C, H, W
        "num_classes": dataset.num_classes,
        "projection_head": settings.projection_head,
        "projection_dim": settings.projection_dim,
        "precision": settings.effective("precision"),
        "names": [],  # of the network of each model
        "weights": [],
    }
    clients = federation.clients if federation.method.personal else federation.clients[:1]
    for client in clients:
        with federation.at_work(client):
            client.load(federation.method.broadcast(federation.server, client.id))
            state = client.model.state()
        content["names"].append(client.architecture or settings.model)
        content["weights"].append({name: value.cpu() for name, value in state.items()})
    checkpoints.save(content, path_of(record))


def load(path: Path | str, client: int = 0) -> Net:
    """The network in such a file, in eval mode; where clients have models of their own that of one.

    ``path`` may be the record's, too. A `RunError` if there is no such model.
    """
    path = path_of(Path(path))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        channels, side, _ = content["shape"]
        network = models.build(
            content["names"][client],
            content["num_classes"],
            channels=channels,
            side=side,
            projection_head=content["projection_head"],
            projection_dim=content["projection_dim"],
            precision=content["precision"],
        )
        network.load_state_dict(content["weights"][client])
    except OSError as error:
        raise RunError(
            f"There is no model at {path}: make the run with --save-model, or save_model=True."
        ) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise RunError(
            f"{path.name} has no such model ({reason}): delete it, and make the run again with "
            "--save-model."
        ) from error
    return network.eval()
