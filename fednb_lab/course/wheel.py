"""The students' installation: a wheel of this package as it is here, without the solutions."""

import base64
import hashlib
import importlib.metadata
import re
import zipfile
from pathlib import Path

import fednb_lab
from fednb import CHECKOUT, PACKAGE, ROOT

TAG = "py3-none-any"
OF_PROJECT = (
    "data/*.csv",
    "data/*.npz",
    "data/synthdigits.py",
    "results/*.csv",
    "results/*.json",
    "notebooks/*.ipynb",
    "notebooks/SETTINGS.md",
    "notebooks/pictures/*.py",
    "notebooks/*/*.ipynb",
    "notebooks/*/*.yaml",
)
LEFT_OUT = re.compile(r"notebooks/solutions/|__pycache__|\.ipynb_checkpoints")
KIND = f"Wheel-Version: 1.0\nGenerator: fednb\nRoot-Is-Purelib: true\nTag: {TAG}\n"


def students_wheel(folder: Path) -> Path:
    """Write the wheel into a folder, and return its path."""
    installed = importlib.metadata.distribution("fednb")
    name = f"fednb-{installed.version}"
    about = f"{name}.dist-info"
    path = folder / f"{name}-{TAG}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    contents = {place: file.read_bytes() for place, file in _files().items()}
    # an editable installation leaves PKG-INFO in the checkout, where it may be found first
    metadata = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    contents[f"{about}/METADATA"] = metadata.encode()
    contents[f"{about}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    contents[f"{about}/WHEEL"] = KIND.encode()
    record = [f"{about}/RECORD,,"]
    for place, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record.append(f"{place},sha256={digest},{len(content)}")
    contents[f"{about}/RECORD"] = "\n".join(record).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, content in contents.items():
            wheel.writestr(place, content)
    return path


def _files() -> dict[str, Path]:
    """The files that are installed, by where in the wheel they lie."""
    files = {}
    for package in (PACKAGE, fednb_lab.PACKAGE):
        for file in package.rglob("*"):
            files[f"{package.name}/{file.relative_to(package).as_posix()}"] = file
    if CHECKOUT:  # else what is the project's lies in the package already
        for pattern in OF_PROJECT:
            for file in ROOT.glob(pattern):
                files[f"fednb/project/{file.relative_to(ROOT).as_posix()}"] = file
    return {
        place: file
        for place, file in sorted(files.items())
        if file.is_file() and not LEFT_OUT.search(place)
    }
