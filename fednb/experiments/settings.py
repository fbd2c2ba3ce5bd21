"""From what is asked for to the settings of a run: filled with the papers' values, and checked."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fednb import data
from fednb.errors import SettingsError, require_known
from fednb.experiments import method_names
from fednb.experiments.defaults import SPLITS, Deviation, deviations, paper_values
from fednb.experiments.schema import FIELDS, MODELS, RULES, Settings, table
from fednb.hyperparameters import Rule

__all__ = ["FIELDS", "MODELS", "SPLITS", "Deviation", "Settings", "SettingsError"]
__all__ += ["deviations", "resolve", "table"]


def resolve(
    methods: Mapping[str, type],
    *,
    method: str,
    dataset: str,
    sampled: int | None = None,
    **given: Any,
) -> Settings:
    """Fill what is None with the paper's setting for the data set, and check every value.

    ``methods`` are the known ones by name, ``sampled`` is ``participation`` as a number of clients,
    and ``given`` are settings, and hyperparameters of any of the methods. One that this run would
    not read must be None: else it is a `SettingsError`, as are an unknown name and a bad value.
    """
    require_known("Unknown method", method, methods)
    method_names.check_name(method)
    overrides = {name: value for name, value in given.items() if value is not None}
    _reject_unknown(overrides, method, methods)
    usual_partition = "domain" if data.spec_of(dataset).domains else "dirichlet"
    partition = RULES["partition"].fit("partition", overrides.get("partition", usual_partition))
    paper = paper_values(method, dataset, partition)
    values = {"seed": 0} | paper | overrides
    checked = {}
    for name in FIELDS:
        if name in overrides:
            _require_applicable(name, values[name], partition)
        checked[name] = _checked(name, values[name], partition, paper.get(name))
    if sampled is not None:
        if "participation" in overrides:
            message = "sampled says participation as a number of clients: give one of the two."
            raise SettingsError(message, setting="sampled", value=sampled)
        checked["participation"] = _participation_of(sampled, checked["num_clients"])
    _check_together(dataset, checked, overrides)
    hyperparameters = _hyperparameters(method, methods[method], values)
    defaults = _hyperparameters(method, methods[method], {})
    return Settings(method, hyperparameters, dataset, **checked, defaults=defaults)


def _reject_unknown(overrides: Mapping[str, Any], method: str, methods: Mapping[str, type]) -> None:
    hyperparameters = _field_names(methods[method])
    unknown = [name for name in overrides if name not in FIELDS and name not in hyperparameters]
    for name in unknown:
        owners = [other for other, cls in methods.items() if name in _field_names(cls)]
        if owners:
            raise SettingsError(
                f"{method} has no parameter {name!r}, which belongs to {', '.join(owners)}; "
                "leave it at None.",
                setting=name,
                value=overrides[name],
            )
        known = [*FIELDS, "method", "dataset", "sampled", *hyperparameters]
        require_known("Unknown parameter", name, known)


def _field_names(method: type) -> list[str]:
    return [field.name for field in dataclasses.fields(method)]


def _require_applicable(name: str, value: Any, partition: str) -> None:
    info = FIELDS[name]
    if not info.applies_to(partition):
        owners = " or ".join(map(repr, info.partitions))
        message = f"{name} belongs to partition {owners}; with {partition!r} leave it at None."
        raise SettingsError(message, setting=name, value=value, allowed=info.partitions)


def _checked(name: str, value: Any, partition: str, paper_value: Any) -> Any:
    """The value of a setting by its rule; None where it does not apply, or says the same as None.

    The latter stays where the paper has a value: there None would mean that one.
    """
    info = FIELDS[name]
    if not info.applies_to(partition):
        return None
    if value is None and info.none_means:
        return None
    fitted = RULES[name].fit(name, value)
    is_default = info.default is not None and fitted == info.default
    return None if is_default and paper_value is None else fitted


def _participation_of(sampled: int, num_clients: int) -> float:
    """The fraction of the clients that ``sampled`` of them are."""
    allowed = f"a whole number from 1 to num_clients, {num_clients}"
    rule = Rule(int, lambda number: 1 <= number <= num_clients, allowed)
    return rule.fit("sampled", sampled) / num_clients


def _check_together(dataset: str, values: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    if values["partition"] == "domain":
        _check_one_client_per_domain(dataset, values["num_clients"])
    _check_projection_head(values, overrides)
    if values["partition"] in ("dirichlet", "iid", "quantity"):
        _check_enough_images(dataset, values)


def _check_projection_head(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    model = values["model"]
    if not values["projection_head"] and "projection_dim" in overrides:
        raise SettingsError(
            "projection_dim belongs to a projection head; "
            "with projection_head False leave it at None.",
            setting="projection_dim",
            value=overrides["projection_dim"],
        )
    if values["projection_head"] and not MODELS.get(model, True):
        message = f"Model {model!r} has no projection head; set projection_head to False."
        raise SettingsError(message, setting="projection_head", value=True, allowed=False)


def _check_one_client_per_domain(dataset: str, num_clients: int) -> None:
    num_domains = len(data.spec_of(dataset).domains)
    if num_clients != num_domains:
        raise SettingsError(
            f"num_clients is {num_clients}, but {dataset} has {num_domains} domains with one "
            "client each; leave it at None, or set partition to 'dirichlet'.",
            setting="num_clients",
            value=num_clients,
            allowed=num_domains,
        )


def _check_enough_images(dataset: str, values: Mapping[str, Any]) -> None:
    """Each client needs ``min_size`` of the images that are not held out; with IID parts one."""
    num_images = data.spec_of(dataset).sizes[0]
    if values["validation"]:
        num_images -= max(1, round(num_images * values["validation"]))
    num_clients = values["num_clients"]
    least = 1
    if values["partition"] != "iid":
        least = values["min_size"] or FIELDS["min_size"].default
    needed = num_clients * least
    if needed > num_images:
        raise SettingsError(
            f"{num_clients} clients with at least {least} images need {needed:,}, and {dataset} "
            f"has {num_images:,} to train on: take fewer clients, a smaller min_size, "
            "or hold out less for validation.",
            setting="num_clients",
            value=num_clients,
            allowed=num_images // least,
        )


def _hyperparameters(name: str, method: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a method, as it checks and fits them; its defaults for the rest."""
    names = _field_names(method)
    try:
        instance = method(**{field: values[field] for field in names if field in values})
    except SettingsError as error:
        parts = {"setting": error.setting, "value": error.value, "allowed": error.allowed}
        raise SettingsError(f"{name}: {error}", **parts) from error
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name}: {error}") from error
    return {field: getattr(instance, field) for field in names}
