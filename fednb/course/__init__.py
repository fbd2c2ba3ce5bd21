"""A course with these notebooks: hand-outs without solutions, their checks, and grading. nbgrader does the work."""

from fednb.course.handout import check, draws, prepare, release
from fednb.errors import CourseError

__all__ = ["CourseError", "check", "draws", "prepare", "release"]
