"""What every test needs: how thorough Hypothesis is, and which Python Spark's workers run."""

import os
import sys

from hypothesis import settings

# No deadline: a kernel's first call compiles it, and CI machines are slow at odd moments.
settings.register_profile("dev", deadline=None, max_examples=100)
# Derandomized, so that a change is judged by the change and not by luck.
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

# Spark would start its workers with the first python3 on PATH, which may lack our packages.
os.environ["PYSPARK_PYTHON"] = sys.executable
