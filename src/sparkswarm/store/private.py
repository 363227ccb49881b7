"""A folder for copies of a checkpoint's files that no other user of the machine can change.

Copies lie in the system's temporary folder, under a name that others can guess, and are read as
what the checkpoint says. So whoever made the folder must be this user, and only this user may use
it. Used by tasks and the driver, for each copy that is fetched.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sparkswarm.errors import StoreError


def private_folder(path: Path) -> None:
    """Make a folder for this user alone, or see that it is one; StoreError if it is not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        # Not stat: a link could be moved to another folder after it was looked at.
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            problem = "it is not a folder"
        elif found.st_uid != os.getuid():
            problem = f"it belongs to user {found.st_uid}"
        elif found.st_mode & 0o022:
            problem = "other users may write to it"
        else:
            if found.st_mode & 0o077:
                # Of earlier versions: nobody else can have written to it.
                path.chmod(0o700)
            return
        raise StoreError(
            f"{path} cannot hold copies of the checkpoint's files: {problem}; delete it, or set "
            "TMPDIR to a folder of your own"
        ) from None
