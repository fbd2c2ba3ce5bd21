"""``make matrix``: `make run` and `make test` in throw-away environments, with the oldest allowed packages and the newest.

    python tests/matrix.py [oldest] [newest]

*oldest* holds every package at the lower bound that pyproject.toml gives it; *newest* is what pip chooses today. An
environment takes some gigabytes in ``build/matrix`` and is removed when both commands have passed in it.
"""

import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "matrix"


def lower_bounds() -> list[str]:
    """Every dependency of pyproject.toml, the extras' included, at its lower bound: ``torch==2.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [d for extra in project["optional-dependencies"].values() for d in extra]
    return [re.sub(r"\[.*?\]", "", d).replace(">=", "==") for d in asked if ">=" in d]


def main(kinds: list[str]) -> int:
    rows = []
    for kind in kinds:
        venv, constraints = FOLDER / kind, FOLDER / f"{kind}.txt"
        shutil.rmtree(venv, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        constraints.write_text("\n".join(lower_bounds() if kind == "oldest" else []) + "\n")
        given = [f"VENV={venv.relative_to(ROOT)}", f"PIP=-c {constraints}"]
        passed = True
        for command in (f"{venv.relative_to(ROOT)}/ready", "run", "test"):
            begin = time.monotonic()
            status = subprocess.run(["make", command, *given], cwd=ROOT, stdin=subprocess.DEVNULL).returncode
            rows.append((kind, Path(command).name, "green" if status == 0 else "RED", (time.monotonic() - begin) / 60))
            passed &= status == 0
        versions = subprocess.run([venv / "bin/pip", "freeze"], capture_output=True, text=True).stdout.split()
        told = ("torch", "torchvision", "numpy", "pandas", "scikit-learn", "matplotlib", "papermill", "nbval", "jupyterlab")
        print(*(v for v in versions if v.split("==")[0] in told), flush=True)
        if passed:
            shutil.rmtree(venv)
    for kind, command, status, minutes in rows:
        print(f"{kind:<8} {command:<6} {status:<6} {minutes:5.1f} min")
    return int(any(status == "RED" for _, _, status, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["oldest", "newest"]))
