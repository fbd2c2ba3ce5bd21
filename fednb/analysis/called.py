"""What settings and coefficients are called where people read them: in tables and figures."""

from typing import Any

_NAMES = {
    "lr": "learning rate",
    "lam": "λ",
    "lam1": "λ₁",
    "lam2": "λ₂",
    "mu": "μ",
    "mu_glob": "μ_glob",
    "mu_moon": "μ_moon",
    "alpha": "α",
    "beta": "β",
}
_SWITCHES = {
    ("niid_bench", True): "as in NIID-Bench",
    ("momentum_factor", False): "without the momentum factor",
    ("classical", True): "classical momentum",
    ("balance", False): "without the balance rule",
    ("random_start", True): "with a random start",
    ("pretrained", False): "without ImageNet weights",
    ("projection_head", True): "with a projection head",
    ("projection_head", False): "without a projection head",
}
_KINDS_OF_SPLIT = {
    "dirichlet": "label shift",
    "iid": "IID clients",
    "quantity": "quantity shift",
    "domain": "a domain for each client",
    "n-way-k-shot": "n classes for each client",
}


def name(setting: str) -> str:
    """Such as ``learning rate`` or ``λ₁``."""
    return _NAMES.get(setting, setting.replace("_", " "))


def value(setting: str, of: Any) -> str:
    """A value in words, without the name of the setting."""
    if setting == "partition":
        return _KINDS_OF_SPLIT.get(str(of), str(of))
    return str(of)


def with_value(setting: str, of: Any) -> str:
    """Such as ``λ₁ = 0.3``, ``learning rate 0.02``, ``without the balance rule``."""
    if isinstance(of, bool):
        return switch(setting, of)
    if setting == "partition":
        return value(setting, of)
    called = name(setting)
    is_symbol = not called.isascii()
    return f"{called} = {of}" if is_symbol else f"{called} {of}"


def switch(setting: str, on: bool) -> str:
    """What a setting means that is on or off."""
    known = _SWITCHES.get((setting, on))
    if known is not None:
        return known
    return name(setting) if on else f"without {name(setting)}"
