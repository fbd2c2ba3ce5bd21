"""The package is a list of files, from the ground up: each imports only what stands above it in the list."""

# DESIGN of the package, one line a floor; a folder stands for its files in the order given here.
ORDER = """
    errors seeds hyperparameters places
    messages models partition plots
    data.spec data.dataset data.augment
    workspace client method
    training.loop evaluation federation
    prototypes finch
    training.layers training.stack training.stacked
""".split()
MAX_LINES = 420
