"""The methods, imported from the notebooks that derive them.

``from fednb.papers.foundations import FedProx`` executes the cells of
``notebooks/00_foundations.ipynb`` that are tagged ``export``, and only those, as a module:
tracebacks and ``inspect.getsource`` show the notebook's own lines. Notebooks of the folder that the
environment variable ``FEDNB_NOTEBOOKS`` names take the place of those of the same name.
"""

from collections.abc import Mapping
from typing import Any

from fednb.experiments.settings import Settings, resolve
from fednb.papers.importer import cells, exported, folder, load, methods, name, notebooks, path
from fednb.papers.outlines import outline
from fednb.papers.parameter_cells import arrange, parameters, parameters_in

__all__ = ["arrange", "cells", "exported", "folder", "load", "methods", "name", "notebooks"]
__all__ += ["outline", "parameters", "path", "settings"]


def settings(notebook: str, namespace: Mapping[str, Any]) -> Settings:
    """The settings of a run of a notebook: ``papers.settings("01_moon", globals())``.

    All that are not its own are in its dict ``more``. A notebook's own ``METHODS`` go before those
    of its file, as a reader may have changed one. A `SettingsError` tells of a bad value, or a name
    that nobody reads.
    """
    known = methods(notebook) | namespace.get("METHODS", {})
    return resolve(known, **parameters_in(notebook, namespace))
