"""Why a batch failed, in one line: what a person must read of a long error of Spark.

Runs on the driver, once a failure.
"""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException

from sparkswarm.errors import InputError

CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


def cause_in(text: str) -> str:
    """Return the innermost error that a Java stack trace names."""
    causes = CAUSE.findall(text)
    if not causes:
        return text.strip().splitlines()[0] if text.strip() else "no reason was given"
    name, reason = causes[-1]
    return f"{name}: {reason}"


def cause_of(error: BaseException) -> str:
    """Return the innermost error behind an exception of Python or of Spark."""
    kind = type(error)
    if kind.__module__.split(".")[0] in ("pyspark", "py4j"):
        return cause_in(str(error))
    return f"{kind.__name__}: {error}"


def not_found(path: str, error: AnalysisException) -> Exception:
    """Return the error to raise where Spark cannot read a path: ours where nothing is there."""
    if error.getCondition() != "PATH_NOT_FOUND":
        return error
    return InputError(f"{path} does not exist; correct the path, or make the folder")
