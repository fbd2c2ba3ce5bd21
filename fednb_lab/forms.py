"""JSON schemas in YAML files, of sweeps and claims: what does not have the form is told in words."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from fednb.errors import shorten


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
