"""A plugin for nbval, ``pytest -p another_seed``: notebooks are executed with a seed that is not the one of their outputs.

What they assert must hold for any; the cells whose outputs are compared are made from committed records.
"""

SEED = 1


def pytest_collection_modifyitems(items):
    for item in items:
        if "parameters" in item.cell.metadata.get("tags", ()):
            item.cell.source += f"\nseed = {SEED}"
