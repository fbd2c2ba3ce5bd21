"""What makes, judges and prints many runs, and the course. No notebook imports it."""

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent

# nbformat imports jsonschema, which imports this where it is installed: three seconds of a
# processor, for each command and each submission, to check a format that no notebook has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
