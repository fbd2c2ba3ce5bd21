"""The contract of a redesign: the same numbers before and after.

    python tests/same.py record FILE    # before: keys of records, settings of sweeps, federations of all methods
    python tests/same.py check FILE     # after: what differs, line by line; exit status 1 if anything does

Digests are of exact bits, so both must run on one machine with one version of PyTorch. `fednb report`
followed by ``git diff --stat results`` shows the rest.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path

ROOT = Path(__file__).resolve().parent.parent
# settings that records of 0.3 have, as None
REMOVED = {"lr_decay": None, "precision": None}
SMALL = {"num_rounds": 3, "local_epochs": 2}
DOMAINS = {"dataset": "digits5_mini", "per_domain": 40, "num_rounds": 2}
FEW = {"dataset": "digits", "partition": "n-way-k-shot"}
# notebook, method, settings: all methods, and what a federation can be told besides
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("00", "FedAvg", {"dataset": "digits"}),
    ("00", "FedAvg", {"dataset": "digits", "partition": "iid", "local_steps": 3}),
    ("00", "FedAvg", {"dataset": "digits", "partition": "quantity", "keep_last": True}),
    ("00", "FedAvg", {"dataset": "digits", "validation": 0.1, "evaluate_every": 2}),
    ("00", "FedProx", {"dataset": "digits", "mu": 0.1}),
    ("00", "SCAFFOLD", {"dataset": "digits", "participation": 0.5}),
    ("00", "SOLO", {"dataset": "digits"}),
    ("00", "FedAvgM", {"dataset": "digits"}),
    ("01", "MOON", {"dataset": "digits", "negatives": 2, "random_start": True}),
    ("01", "MOON", {"dataset": "digits", "participation": 0.5, "mu": 5.0}),
    ("01", "MOON+FedAvgM", {"dataset": "digits"}),
    ("02", "FedProc", {"dataset": "digits", "alpha_schedule": "two-stage"}),
    ("02", "FedProc", {"dataset": "digits", "alpha": 0.0, "normalise_z": True}),
    ("03", "FedSSC", {"dataset": "digits"}),
    ("04", "FedProto", FEW),
    ("04", "FedRep", FEW),
    ("04", "FeSEM", FEW),
    ("04", "FedPer", FEW | {"validation": 0.2}),
    ("04", "Local", FEW),
    ("05", "FedPLCC", DOMAINS),
    ("05", "FedPLCC", DOMAINS | {"model": "resnet-10"}),
    ("05", "FPL", DOMAINS),
    ("05", "FedPLVM", DOMAINS | {"test_per_domain": 50}),
    ("fccl_plus", "FCCL+", DOMAINS | {"public_size": 128}),
    ("feddyn_fednova", "FedDyn", {"dataset": "digits"}),
    ("feddyn_fednova", "FedNova", {"dataset": "digits", "partition": "quantity"}),
    ("06", "FedPrior", {"dataset": "digits", "validation": 0.1}),
    ("06", "OwnPrior", {"dataset": "digits"}),
]


def digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=10).hexdigest()


def bits(tree: Any) -> str:
    """A digest of all tensors in nested dicts and lists, and of where they stand."""
    lines = []
    for path, leaf in tree_flatten_with_path(tree)[0]:
        content = repr(leaf).encode()
        if isinstance(leaf, torch.Tensor):
            content = leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        lines.append(f"{path} {digest(content)}")
    return digest("\n".join(sorted(lines)).encode())


def federations() -> dict[str, str]:
    """Digests of history, server and memories of every case."""
    found = {}
    for notebook, method, given in CASES:
        name = f"{notebook} {method} {json.dumps(given, sort_keys=True)}"
        try:
            fed = build_federation(notebook, method, SMALL | given)
        except Exception as error:
            found[name] = f"refused: {type(error).__name__}"
            continue
        for _ in range(fed.training.num_rounds):
            fed.run_round()
        history = [
            {key: value for key, value in entry.items() if is_exact(key)} for entry in fed.history
        ]
        memories = [client.memory for client in fed.clients]
        rounds = digest(json.dumps(history, sort_keys=True).encode())
        found[name] = f"{rounds} {bits(fed.server)} {bits(memories)}"
    return found


def is_exact(key: str) -> bool:
    return not key.endswith("seconds") and key != "held_bytes"


# --- what the package is called; the only part that a redesign touches


def build_federation(notebook: str, method: str, given: dict[str, Any]) -> Any:
    from fednb import build, papers
    from fednb.settings import resolve

    methods = papers.methods(notebook)
    settings = resolve(methods, method=method, **given)
    return build.federation(settings, methods, device="cpu", workers=2)


def keys() -> dict[str, str]:
    """The keys of all records, computed anew from their settings."""
    from fednb import records as ledger

    found = {}
    for file in sorted((ROOT / "results" / "runs").glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        found[file.name] = f"{record['key']} {ledger.key(record['settings'])}"
    return found


def jobs() -> dict[str, str]:
    """The settings of every run of every sweep, by table."""
    from fednb_lab import sweeps

    found = {}
    for name, table in sorted(sweeps.read_tables(ROOT / "notebooks" / "sweeps").items()):
        settings = [json.dumps(job.settings.flat() | REMOVED, sort_keys=True) for job in table.jobs]
        found[name] = f"{len(settings)} {digest(chr(10).join(sorted(settings)).encode())}"
    return found


# ---


def main(mode: str, file: str) -> int:
    torch.set_num_threads(1)
    now = {"keys": keys(), "jobs": jobs(), "federations": federations()}
    if mode == "record":
        Path(file).write_text(json.dumps(now, indent=1), encoding="utf-8")
        print({part: len(values) for part, values in now.items()})
        return 0
    before = json.loads(Path(file).read_text(encoding="utf-8"))
    different = 0
    for part, values in before.items():
        for name, value in values.items():
            if now[part].get(name) != value:
                different += 1
                print(f"{part}: {name}\n  before {value}\n  now    {now[part].get(name)}")
    print(f"{different} of {sum(map(len, before.values()))} differ")
    return int(different > 0)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:3]))
