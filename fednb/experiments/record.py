"""What the record of a run holds; by ``record.schema.yaml`` it is checked when it is read."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import fastjsonschema
import yaml

from fednb.errors import shorten

SCHEMA = Path(__file__).with_name("record.schema.yaml")
_ROUNDING = 0.01  # points of accuracy: how far two roundings of one number may lie apart


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
    deviations: list[str]  # from the paper's settings
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
    digest: NotRequired[str]  # of status, final measures and metrics; old records have none


def digest_of(record: Mapping[str, Any]) -> str:
    """Twelve hex digits that change with the results of a run."""
    results = [record["status"], record.get("final"), record["metrics"]]
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()[:12]


def as_record(content: Any) -> Record:
    """The content of a file as a record; a ``ValueError`` says what is wrong with it."""
    check_form(content, SCHEMA)
    record = cast(Record, content)
    if "digest" in record and record["digest"] != digest_of(record):
        raise ValueError("its results are not those that were recorded")
    if record["status"] == "finished":
        _check_accuracy(record)
    return record


def _check_accuracy(record: Record) -> None:
    """Compare the result of a run with its last round."""
    final = record["final"]["accuracy"]
    rounds = record["metrics"].get("accuracy") or [final]
    if rounds[-1] is None or not abs(rounds[-1] - final) <= _ROUNDING:  # NaN is not either
        raise ValueError(f"its accuracy is {final}, and that of its last round {rounds[-1]}")


def check_form(content: Any, schema: Path) -> None:
    """Compare with a JSON schema in a YAML file; else a ``ValueError`` says what is wrong."""
    try:
        _validator(schema)(content)
    except fastjsonschema.JsonSchemaValueException as error:
        where = (error.name or "").removeprefix("data").removeprefix(".") or "what it holds"
        raise ValueError(f"{where[:200]} {_what_is_wrong(error)}") from error


@functools.cache
def _validator(schema: Path) -> Callable[[Any], Any]:
    return fastjsonschema.compile(yaml.safe_load(schema.read_text(encoding="utf-8")))


_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_EXPECTED = {
    "enum": "must be one of {}",
    "type": "must be {}",
    "minItems": "must not be empty",
    "minProperties": "must not be empty",
    "exclusiveMinimum": "must be more than {}",
    "minimum": "must be {} or more",
    "maximum": "must be {} or less",
}


def _what_is_wrong(error: fastjsonschema.JsonSchemaValueException) -> str:
    """What a value that breaks a rule of a schema must be, after its name."""
    allowed = error.rule_definition
    if error.rule == "required":
        return f"lacks {', '.join(name for name in allowed if name not in error.value)}"
    if error.rule == "additionalProperties":
        known = error.definition.get("properties", {})
        unknown = [name for name in error.value if name not in known]
        return f"has no {unknown[0]!r}; known are {', '.join(known)}"
    if error.rule == "type":
        kinds = [allowed] if isinstance(allowed, str) else allowed
        allowed = " or ".join(_KINDS[kind] for kind in kinds)
    elif error.rule == "enum":
        allowed = ", ".join(map(str, allowed))
    expected = _EXPECTED.get(error.rule or "", "holds what it cannot hold").format(allowed)
    if isinstance(error.value, list | dict):  # of which a file can make more than can be shown
        return expected
    return f"is {shorten(error.value)}; it {expected}"
