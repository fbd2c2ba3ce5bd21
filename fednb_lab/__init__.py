"""What makes, judges and prints many runs, and the course. No notebook imports it."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
