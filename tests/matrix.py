"""``make matrix``: `make run` and `make test` in throw-away environments, with the oldest allowed packages and the newest.

    python tests/matrix.py [oldest] [newest]

*oldest* holds every package at the lower bound that pyproject.toml gives it; *newest* is what pip chooses today. An
environment takes some gigabytes in ``build/matrix`` and is removed when both commands have passed in it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "matrix"


def lower_bounds() -> list[str]:
    """Every dependency of pyproject.toml, the extras' included, at its lower bound: ``torch==2.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [
        d for extra in project["optional-dependencies"].values() for d in extra
    ]
    return [re.sub(r"\[.*?\]", "", d).replace(">=", "==") for d in asked if ">=" in d]


def main(kinds: list[str]) -> int:
    told = {}
    for kind in kinds:
        venv, constraints = FOLDER / kind, FOLDER / f"{kind}.txt"
        shutil.rmtree(venv, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        constraints.write_text("\n".join(lower_bounds() if kind == "oldest" else []) + "\n")
        given = [f"VENV={venv.relative_to(ROOT)}", f"PIP=-c {constraints}"]
        for command in (f"{venv.relative_to(ROOT)}/ready", "run", "test"):
            done = subprocess.run(["make", command, *given], cwd=ROOT, stdin=subprocess.DEVNULL)
            told[kind, Path(command).name] = "RED" if done.returncode else "green"
        subprocess.run([venv / "bin" / "pip", "freeze"])
        if "RED" not in (told[kind, "run"], told[kind, "test"]):
            shutil.rmtree(venv)
    for (kind, command), colour in told.items():
        print(f"{kind:<8} {command:<6} {colour}")
    return int("RED" in told.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["oldest", "newest"]))
