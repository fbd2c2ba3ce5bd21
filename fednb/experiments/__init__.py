"""Settings, runs, and their records."""

import lazy_loader

# What notebooks need, imported when it is asked for: PyTorch takes seconds.
_WHERE = {"build": ["federation", "load_dataset"], "runner": ["run"]}
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, ["final_model", "ledger", "settings"], _WHERE
)
