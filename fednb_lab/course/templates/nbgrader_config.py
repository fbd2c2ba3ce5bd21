# How nbgrader works for a course. The copy in the course folder can be changed; nbgrader's own
# commands heed it, too.
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearOutput, Execute, InstantiateTests

from fednb_lab.course.grading import Sandboxed
from fednb_lab.course.notebooks import ANSWER, STUB

c = get_config()  # type: ignore[name-defined]  # noqa: F821

# What is handed in. Every check gets hidden inputs that the seed and the student's name decide.
c.Execute.timeout = 60  # seconds for a cell
c.Sandboxed.seconds = 900  # seconds for all of a submission
c.Sandboxed.seed = "fednb"
c.Autograde.autograde_preprocessors = [
    Sandboxed if step is Execute else step for step in Autograde().autograde_preprocessors
]
# A warning on stderr would cost all points of a check.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "(?s).*"
# A feedback page is opened by others than who wrote its outputs.
c.HTMLExporter.sanitize_html = True

# What is handed out. The outputs of what is not asked for stay readable: there is no ClearOutput.
c.CourseDirectory.course_id = "fednb"
c.ClearSolutions.code_stub = {"python": STUB}
c.ClearSolutions.text_stub = ANSWER
steps = GenerateAssignment().preprocessors
left_out = (ClearOutput, InstantiateTests)
c.GenerateAssignment.preprocessors = [step for step in steps if step not in left_out]
# Students may play with locked cells, which are put back for grading.
c.LockCells.lock_readonly_cells = False
