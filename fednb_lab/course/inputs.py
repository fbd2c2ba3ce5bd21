"""Hidden inputs of checks. It imports next to nothing, as each check has a limit of time."""

import os
import zlib

import numpy as np


def draws(purpose: str) -> np.random.Generator:
    """The generator of hidden inputs for a check, such as ``draws("exercise 3")``.

    Students get different inputs, and each gets the same ones again when graded again: grading
    sets the student's number as ``FEDNB_STUDENT_SEED``.
    """
    student = int(os.environ.get("FEDNB_STUDENT_SEED", 0))
    return np.random.default_rng([student, zlib.crc32(purpose.encode())])
