"""What a method may be called: its name is in file names, commands, tables and Python."""

import keyword
import re

from fednb.errors import SettingsError, check

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._+-]{0,59}")

# Files that Windows takes for devices, whatever follows the dot.
_DEVICES = {"con", "prn", "aux", "nul"}
_DEVICES |= {f"{device}{number}" for device in ("com", "lpt") for number in range(10)}


def is_reserved(name: str) -> bool:
    """Whether a word means something else: to Python (``None``), or as a device (``NUL``)."""
    word = name.lower()
    is_keyword = any(keyword.iskeyword(form) for form in (name, word, word.capitalize()))
    return is_keyword or word.partition(".")[0] in _DEVICES


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a method, with a `SettingsError`."""
    refusal = f"A method cannot be called {name[:80]!r}"
    allowed = "a letter, then letters, digits and . _ + -, at most 60 characters"
    check(_NAME.fullmatch(name), f"{refusal}: it must be {allowed}.", SettingsError)
    check(not is_reserved(name), f"{refusal}: that word is taken: choose another.", SettingsError)


def alike(name: str) -> str:
    """What is equal for two names that a reader would take for one: ``fed_avg`` and ``FedAvg``."""
    return re.sub(r"[\W_]", "", name).lower()
