"""Draws docs/bowls.gif, the README's animation: ``python docs/bowls.py``."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from fednb.papers.pictures.foundations import best, bowls, local_steps, minima
from matplotlib.animation import FuncAnimation, PillowWriter

COLOURS = ("#8c6bb1", "#2a9d8f")
STEPS = 60  # of a client in a round
SHOWN = np.linspace(0, STEPS, 9).astype(int)  # of these steps
ROUNDS = 6
HELD = 12  # frames at the end


def frames() -> list[tuple[list[np.ndarray], np.ndarray, str]]:
    """Of each frame both clients' ways so far, the server's places so far, and what happens."""
    server = np.array([1.0, 1.2])
    places = [server]
    made = []
    for t in range(1, ROUNDS + 1):
        ways = [local_steps(i, server, STEPS) for i in range(2)]
        for step in SHOWN:
            so_far = [way[: step + 1] for way in ways]
            made.append(
                (so_far, np.array(places), f"round {t}: each client walks to its own minimum")
            )
        server = np.mean([way[-1] for way in ways], 0)
        places.append(server)
        for _ in range(4):
            made.append((ways, np.array(places), f"round {t}: the server averages"))
    last = "and there it stays: beside the minimum of the sum"
    return made + HELD * [(ways, np.array(places), last)]


def draw() -> FuncAnimation:
    """The animation."""
    figure, ax = plt.subplots(figsize=(6.6, 3.9), layout="constrained")
    grid, losses = bowls()
    for i, colour in enumerate(COLOURS):
        ax.contour(
            *grid.T, losses[i].T, [0.05, 0.2, 0.6, 1.4], colors=colour, linewidths=0.7, alpha=0.5
        )
        ax.plot(*minima[i], "^", ms=9, color=colour)
        above = 10 if i == 0 else -16
        ax.annotate(
            f"client {i + 1}'s minimum",
            minima[i],
            (0, above),
            textcoords="offset points",
            ha="center",
            color=colour,
        )
    ax.plot(*best, "*", ms=15, color="black")
    ax.annotate("minimum of the sum", best, (0, -20), textcoords="offset points", ha="center")
    ways = [ax.plot([], [], lw=3, color=colour)[0] for colour in COLOURS]
    (path,) = ax.plot([], [], "o-", ms=4, lw=1, color="0.35")
    name = ax.text(0, 0, "server", fontsize=10)
    (server,) = ax.plot([], [], "o", ms=11, mfc="white", mec="black", mew=2)
    ax.set(aspect="equal", xticks=[], yticks=[], xlim=(-1.7, 2.1), ylim=(-1.0, 1.4))
    ax.spines[:].set_visible(False)
    made = frames()

    def show(number: int) -> None:
        of_clients, places, words = made[number]
        for line, way in zip(ways, of_clients, strict=True):
            line.set_data(*way.T)
        path.set_data(*places.T)
        server.set_data(*places[-1:].T)
        name.set_position(places[-1] + [0.07, 0.07])
        ax.set_title(words, fontsize=11)

    return FuncAnimation(figure, show, frames=len(made))


if __name__ == "__main__":
    draw().save(Path(__file__).with_name("bowls.gif"), PillowWriter(fps=8), dpi=90)
