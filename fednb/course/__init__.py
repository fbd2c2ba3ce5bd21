"""A course with these notebooks: hand-outs without solutions, their checks, and grading. nbgrader does the work."""

from fednb.course.checking import check, prepare
from fednb.course.handout import gives_away, release
from fednb.course.tools import FOLDER, CourseError, draws, same_rounds

__all__ = ["FOLDER", "CourseError", "check", "draws", "gives_away", "prepare", "release", "same_rounds"]
