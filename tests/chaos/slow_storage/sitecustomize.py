"""Makes every file of a checkpoint slow to write, in all processes that find this on their path.

Python imports a module of this name at its start. Only the row of slow storage has this folder on
its path.
"""

import os
import time

if "SLOW_STORAGE_S" in os.environ:
    from sparkswarm.store.files import Files

    _write = Files.write

    def _slow_write(self, *args, **named):
        time.sleep(float(os.environ["SLOW_STORAGE_S"]))
        with open(os.environ["SLOW_STORAGE_LOG"], "a") as log:
            log.write("written\n")
        return _write(self, *args, **named)

    Files.write = _slow_write
