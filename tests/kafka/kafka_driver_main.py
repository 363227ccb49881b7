"""A driver that runs a run file, and in which something may die within a transaction.

Run as a script: ``python kafka_driver_main.py RUN.toml [PLACE PID [TRANSACTION]]``. At the place,
in the n-th transaction of this process, the process with that id is killed with SIGKILL; 0 is this
one.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

BEFORE_COMMIT = "after the rows were sent, before the transaction is committed"
AFTER_COMMIT = "after the transaction is committed"


def lay_in_wait(place: str, pid: int, transaction: int) -> None:
    """Replace the producer by one that kills at a place."""
    import confluent_kafka

    class Deadly(confluent_kafka.Producer):
        begun = 0

        def begin_transaction(self, *args: Any) -> None:
            super().begin_transaction(*args)
            self.begun += 1

        def commit_transaction(self, *args: Any) -> None:
            due = self.begun == transaction
            if due and place == BEFORE_COMMIT:
                self.flush(60)
                self.begun += 1  # a commit that is tried again kills nobody
                os.kill(pid or os.getpid(), signal.SIGKILL)
            super().commit_transaction(*args)
            if due and place == AFTER_COMMIT:
                os.kill(pid or os.getpid(), signal.SIGKILL)

    confluent_kafka.Producer = Deadly


def main(file: str, place: str = "", pid: str = "0", transaction: str = "1") -> None:
    """Run the file to its end."""
    if place:
        lay_in_wait(place, int(pid), int(transaction))
    from sparkswarm.runfile.job import running
    from sparkswarm.runfile.reader import read_run_file

    with running(read_run_file(Path(file))) as handle:
        handle.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
