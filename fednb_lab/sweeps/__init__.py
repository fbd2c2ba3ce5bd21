"""Sweeps: the tables of the papers as grids of parameters, and whatever makes the runs that are not
recorded yet.

In the order of use: `files` reads the sweep files into the values of `table`, and `jobs` finds the
settings of each run. `plan` says which runs are recorded and which are to be made; `execution`
makes these, through `processes` on this machine or through `cluster` on others. A process of a run
executes cells (`run_cells`); it is a fork of a `server` that has imported everything, or a new one.
`whole` executes whole notebooks, and `scaffold` writes files to begin a method with.
"""
