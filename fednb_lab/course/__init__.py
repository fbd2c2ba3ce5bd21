"""A course with these notebooks: hand-outs without solutions, their checks, and grading.

nbgrader does the work, in a sandbox made by bubblewrap. It is an extra: ``pip install
"fednb[course]"``. What solved notebooks import is in `fednb.exercises`.
"""
