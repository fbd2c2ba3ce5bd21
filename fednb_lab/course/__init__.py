"""A course with these notebooks: hand-outs without solutions, their checks, and grading.

nbgrader does the work, in a sandbox made by bubblewrap. It is an extra: ``pip install
"fednb[course]"``. What solved notebooks import is in `fednb.exercises`.
"""

import sys

from fednb.errors import CourseError as CourseError

# nbformat imports jsonschema, which imports this where it is installed: three seconds of a
# processor, for each submission, to check a format that no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
