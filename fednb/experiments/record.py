"""What the record of a run holds; by ``record.schema.yaml`` it is checked when it is read."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import fastjsonschema
import yaml


class DataRecord(TypedDict, total=False):
    """The data of a run."""

    name: str
    fingerprint: str
    source: str  # where the images come from
    note: str  # in what they are not as published
    remark: str
    training_images: int
    test_images: int


class PartitionRecord(TypedDict, total=False):
    """Who has which images."""

    hash: str  # a digest of that
    sizes: list[int]  # training images of each client
    test_images: int  # that are evaluated, where it is not all
    test_sizes: list[int]  # of each client, where each has its own


class Record(TypedDict):
    """A run: what was asked for and what came out. What is not required, a failed run may lack."""

    key: str  # of the settings, see `ledger.key`
    results_version: int  # of the numerics that made it
    method: NotRequired[str]
    settings: dict[str, Any]  # all of them, hyperparameters and seed among them
    deviations: list[str]  # from the paper's settings: `Deviation.parse` reads one
    dataset: DataRecord
    versions: NotRequired[dict[str, str]]  # of Python and libraries
    commit: NotRequired[str | None]  # of the code
    finished_at: NotRequired[str]  # in ISO 8601, UTC
    status: Literal["finished", "diverged", "failed"]
    error: NotRequired[str]  # of a run that failed
    final: NotRequired[dict[str, Any]]  # measures after the last round; empty if it diverged
    partition: NotRequired[PartitionRecord]
    model_parameters: NotRequired[int | list[int]]  # of each client's network, where they differ
    # by direction ("down", "up") and name: how many numbers and bytes
    messages_per_round: NotRequired[dict[str, dict[str, list[int]]]]
    seconds_per_round: NotRequired[float]
    wall_seconds: NotRequired[float]
    device: NotRequired[str]  # the processor or GPU
    threads_per_client: NotRequired[int | None]
    workers: NotRequired[int]  # clients side by side
    gpu_peak_bytes: NotRequired[int]
    metrics: dict[str, list[Any]]  # by name: a value for each round


def as_record(content: Any) -> Record:
    """The content of a file as a record; a ``ValueError`` says what is wrong with it."""
    check_form(content, "record")
    return cast(Record, content)


def check_form(content: Any, schema: str | Path) -> None:
    """Compare with a schema, a YAML file or the name of one here; else a ``ValueError``."""
    if isinstance(schema, str):
        schema = Path(__file__).with_name(f"{schema}.schema.yaml")
    try:
        _validator(schema)(content)
    except fastjsonschema.JsonSchemaValueException as error:
        message = error.message[:300].replace("data", "it", 1)
        if error.rule == "additionalProperties":
            message += f"; known are {', '.join(error.definition['properties'])}"
        raise ValueError(message) from error


@functools.cache
def _validator(schema: Path) -> Callable[[Any], Any]:
    return fastjsonschema.compile(yaml.safe_load(schema.read_text(encoding="utf-8")))
