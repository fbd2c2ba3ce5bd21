"""What ``--help`` says beside the arguments: examples of each command, environment variables."""

# By command, as it is typed. Each line can be copied; a test parses all of them.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "notebooks": ("notebooks", "notebooks --seed 3 --out build/seed3"),
    "sweep": (
        "sweep my_method.yaml --jobs 2",
        "sweep notebooks/sweeps/01_moon.yaml --table digits-moon --only seed=0 --dry-run",
        "sweep notebooks/sweeps --tier minutes-gpu --only dataset=cifar10",
    ),
    "run": (
        "run 01_moon method=MOON mu=5 num_rounds=20",
        "run my_method.ipynb dataset=folder:photos lr_decay=0.99 --again",
    ),
    "list": ("list",),
    "check": (
        "check digits --dry-run",
        "check digits FedAvg --seeds 1",
        "check my_method.yaml MyMethod --column 0.5",
    ),
    "report": ("report", "report my_method.yaml", "report --runs results/runs --out build/report"),
    "new": ("new FedDyn", "new my_method"),
    "compare": (
        "compare FedAvg MOON",
        "compare FedAvg MOON --latex --curves curves.csv",
        "compare FedAvg my_method.ipynb --seeds 5 --jobs 2 beta=0.1 num_rounds=30",
    ),
    "settings": ("settings",),
    "data": ("data", "data cifar10"),
    "course release": ("course release 01_moon",),
    "course split": ("course split 01_moon",),
    "course check": ("course check 01_moon.ipynb",),
    "course grade": ("course grade 01_moon submitted",),
    "completion": ("completion bash", "completion zsh"),
}

_VARIABLES = {
    "FEDNB_RUNS": "folder of run records (default: results/runs, here or beside one's own notebook)",
    "FEDNB_DATA": "folder of data sets (default: data)",
    "FEDNB_CACHE": "folder of decoded data sets (default: data/cache)",
    "FEDNB_NOTEBOOKS": "folder of notebooks that take the place of the project's of the same name",
    "FEDNB_DEVICE": "cpu, cuda or cuda:N (default: a GPU if there is one)",
    "FEDNB_WORKERS": "clients that train side by side on a CPU (default: one per core)",
    "FEDNB_PROGRESS": "bar, log or off: how rounds are shown",
}


def examples(command: str) -> str:
    """The examples of a command, as they stand below its arguments."""
    return "\n".join(["examples:", *(f"  fednb {line}" for line in EXAMPLES[command])])


def variables() -> str:
    """The variables of the environment that commands and notebooks read."""
    lines = [f"  {name:<17} {meaning}" for name, meaning in _VARIABLES.items()]
    more = "settings of a run: `fednb settings`, or notebooks/SETTINGS.md"
    return "\n".join(["variables of the environment:", *lines, "", more])
