"""A course with these notebooks: hand-outs without solutions, their checks, and grading.

nbgrader does the work. It is an extra, ``pip install "fednb[course]"``; `draws` and `prepare` need it not.
"""

import lazy_loader

from fednb.errors import CourseError as CourseError

# Imported when it is asked for: solved notebooks call `prepare` and `draws`, and shall not need nbgrader.
_WHERE = {
    "inputs": ["draws"],
    "students": ["check", "prepare"],
    "handout": ["release"],
    "solutions": ["split"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_WHERE)
