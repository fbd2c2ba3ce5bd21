# How nbgrader works for a course. The copy in the course folder can be changed; nbgrader's own commands heed it, too.
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearOutput, Execute, InstantiateTests

from fednb.course.grading import Fenced
from fednb.course.handout import ANSWER, STUB

c = get_config()  # noqa: F821

# What is handed in. Every check gets hidden inputs that the seed and the student's name decide.
c.Execute.timeout = 60  # seconds for a cell
c.Fenced.seconds = 900  # seconds for all of a submission
c.Fenced.seed = "fednb"
c.Autograde.autograde_preprocessors = [
    Fenced if s is Execute else s for s in Autograde().autograde_preprocessors
]
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "(?s).*"  # a warning on stderr would cost all points of a check
c.Execute.iopub_timeout = (
    60  # nbclient's 4 seconds for the output to arrive fail good work on a busy machine
)
c.Execute.error_on_timeout = {
    "ename": "CellTimeoutError",
    "evalue": "it took too long",
    "traceback": ["It took too long."],
}
c.Execute.extra_arguments = [
    "--Application.log_level=50"
]  # how the kernel is connected is nobody's business
c.HTMLExporter.sanitize_html = (
    True  # a feedback page is opened by others than who wrote its outputs
)

# What is handed out. Students may play with locked cells, which are put back for grading.
c.CourseDirectory.course_id = "fednb"
c.ClearSolutions.code_stub = {"python": STUB}
c.ClearSolutions.text_stub = ANSWER
steps = (
    GenerateAssignment().preprocessors
)  # without ClearOutput: the outputs of what is not asked for stay readable
c.GenerateAssignment.preprocessors = [
    step for step in steps if step not in (ClearOutput, InstantiateTests)
]
c.LockCells.lock_readonly_cells = False
