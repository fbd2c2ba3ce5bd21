"""Pictures of notebook 01: where MOON's contrast leads a representation."""

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from fednb import plots

_SHOWN = (-80, -40, -20, -8, -4, -2, 0, 2)  # points of lead on the axis
_BEGIN = "z_glob, where\na round begins"


def _at(degrees: Any, radius: float = 1.0) -> tuple[Any, Any]:
    """Points of the circle: their x, their y."""
    return radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))


def _contrast(degrees: np.ndarray, z_glob: float, z_prev: float) -> np.ndarray:
    """The loss of equation (3) for representations in these directions, with τ = 0.5."""
    to_glob = np.cos(np.radians(degrees - z_glob))
    to_prev = np.cos(np.radians(degrees - z_prev))
    return np.log1p(np.exp((to_prev - to_glob) / 0.5))


def overshoot() -> Axes:
    """The contrast around the circle of directions: its minimum lies beyond the global model."""
    z_prev, z_glob, minimum = 150.0, 90.0, 30.0  # in degrees
    direction = np.arange(0.0, 360.0)
    loss = _contrast(direction, z_glob, z_prev)
    _, ax = plt.subplots(figsize=(8.5, 4.6))
    ax.scatter(*_at(direction), color="0.75", s=150)
    ring = ax.scatter(*_at(direction), c=loss, cmap="YlGnBu", s=110)
    plt.colorbar(ring, ax=ax, label="contrastive loss", shrink=0.8)
    colour = plots.colour("MOON")
    ax.plot(*_at(np.linspace(z_glob - 2, minimum + 6, 40), 0.84), color=colour, lw=2.5)
    arrow = {"color": colour, "lw": 2}
    ax.annotate("", _at(minimum + 3, 0.84), _at(minimum + 9, 0.84), arrowprops=arrow)
    ax.annotate("MOON's\novershoot", _at(62, 0.52), color=colour, ha="center", weight="bold")
    for place, mark, size in ((z_prev, "s", 11), (z_glob, "s", 11), (minimum, "*", 22)):
        ax.plot(*_at(place), mark, ms=size, color="black")
    ax.annotate("z_prev, the client's\nlast model", _at(z_prev, 1.12), ha="right", va="center")
    ax.annotate(_BEGIN, _at(z_glob, 1.1), ha="center", va="bottom")
    ax.annotate("the minimum", _at(minimum, 1.12), va="center")
    ax.set(aspect="equal", xlim=(-1.8, 1.8), ylim=(-1.1, 1.5))
    ax.axis("off")
    return ax


def loss_by_direction() -> Axes:
    """The contrast over the direction of z, for several angles θ between the frozen models.

    Directions are counted from z_glob on; z_prev is to the left of it, so beyond is to the right.
    """
    direction = np.linspace(-180, 180, 721)
    _, ax = plt.subplots(figsize=(8.5, 4.2))
    beside: dict[str, Any] = {"va": "center", "transform": ax.get_yaxis_transform()}
    for theta, shade in ((10, 0.45), (45, 0.7), (120, 1.0)):
        loss = _contrast(direction, 0.0, -theta)
        lowest = int(loss.argmin())
        look: dict[str, Any] = {"color": plots.colour("MOON"), "alpha": shade}
        ax.plot(direction, loss, lw=2, **look)
        ax.plot(-theta, loss[np.abs(direction + theta).argmin()], "s", ms=7, **look)
        ax.plot(direction[lowest], loss[lowest], "*", ms=16, **look)
        ax.text(1.01, loss[-1], f"θ = {theta}°", **beside, **look)
    ax.axvline(0, color="0.6", lw=1)
    ax.annotate(_BEGIN, (4, 1.6), color="0.4")
    ax.annotate("squares: z_prev", (-104, 2.75), color="0.4", ha="left")
    ax.annotate("stars: the minimum", (30, -0.32), color="0.4", ha="left")
    ax.set(xlabel="direction of z, in degrees beyond z_glob", ylabel="contrastive loss, τ = 0.5")
    ax.set(xticks=range(-180, 181, 45), xlim=(-180, 180), ylim=(-0.45, 3.7))
    return ax


def near_zero(axes: Iterable[Axes]) -> None:
    """Leads on an axis that is linear near zero, where small weights differ, and logarithmic below."""
    for ax in axes:
        ax.set_yscale("symlog", linthresh=8, linscale=2)
        ax.set_yticks(_SHOWN, [f"{lead:+d}" for lead in _SHOWN])
        ax.minorticks_off()
        ax.set_xlabel("weight μ of the contrast")
        ax.set(ylabel="lead over FedAvg (points,\ncompressed below −8)", ylim=(-100, 3))
        ax.grid(axis="y", alpha=0.3)
        ax.label_outer()
