"""A course with these notebooks: hand-outs without solutions, their checks, and grading. nbgrader does the work."""

from fednb.course.checking import check, draws, prepare
from fednb.course.handout import CourseError, release

__all__ = ["CourseError", "check", "draws", "prepare", "release"]
