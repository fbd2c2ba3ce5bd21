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
    return _KINDS_OF_SPLIT.get(of, str(of)) if setting == "partition" else str(of)


def with_value(setting: str, of: Any) -> str:
    """Such as ``λ₁ = 0.3``, ``learning rate 0.02``, ``without the balance rule``."""
    called = name(setting)
    if isinstance(of, bool):
        usual = called if of else f"without {called}"
        return _SWITCHES.get((setting, of), usual)
    if setting == "partition":
        return value(setting, of)
    is_symbol = not called.isascii()
    return f"{called} = {of}" if is_symbol else f"{called} {of}"
