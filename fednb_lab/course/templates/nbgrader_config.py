# How nbgrader works for a course. The copy in the course folder can be changed; nbgrader's own
# commands heed it, too.
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.preprocessors import ClearOutput, Execute, InstantiateTests

from fednb_lab.course.nbgrading import Excerpt
from fednb_lab.course.notebooks import PLACEHOLDER, STUB

c = get_config()  # type: ignore[name-defined]  # noqa: F821

# What is handed in. Every check gets hidden inputs that the seed and the student's name decide.
c.FedNB.cell_seconds = 60
c.FedNB.seconds = 900  # for all of a submission
c.FedNB.seed = "fednb"
# `fednb course grade` has executed in the sandbox what nbgrader grades: its outputs are read.
checks = Autograde()
c.Autograde.sanitize_preprocessors = [
    step for step in checks.sanitize_preprocessors if step is not ClearOutput
]
c.Autograde.autograde_preprocessors = [
    step for step in checks.autograde_preprocessors if step is not Execute
]
# A warning on stderr would cost all points of a check.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = "(?s).*"
# A feedback page is opened by others than who wrote its outputs.
c.HTMLExporter.sanitize_html = True
c.GenerateFeedback.preprocessors = [*GenerateFeedback().preprocessors, Excerpt]

# What is handed out. The outputs of what is not asked for stay readable: there is no ClearOutput.
c.CourseDirectory.course_id = "fednb"
c.ClearSolutions.code_stub = {"python": STUB}
c.ClearSolutions.text_stub = PLACEHOLDER
steps = GenerateAssignment().preprocessors
left_out = (ClearOutput, InstantiateTests)
c.GenerateAssignment.preprocessors = [step for step in steps if step not in left_out]
# Students may play with locked cells, which are put back for grading.
c.LockCells.lock_readonly_cells = False
