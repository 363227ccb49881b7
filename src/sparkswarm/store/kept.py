"""How large is what a checkpoint keeps beside queries: points of the window, state, and objects.

Computed from a manifest alone, no file is read. Used by the driver, once a batch.
"""

from __future__ import annotations

from sparkswarm.errors import StoreError
from sparkswarm.store.manifest import Manifest


def window_bytes(manifest: Manifest) -> int:
    """Return the bytes of the values of recent points."""
    blocks = (block for some in manifest.blocks.values() for block in some)
    return sum(block.meta.size * block.points // block.meta.rows for block in blocks)


def state_bytes(manifest: Manifest) -> int:
    """Return the bytes of the files with the state of queries."""
    files = {state.file for some in manifest.states.values() for state in some}
    return sum(file.size for file in files)


def check_kept_bytes(manifest: Manifest, limit: int, batch: int) -> None:
    """Raise StoreError if a batch would leave more than the limit; 0 is none."""
    objects = sum(file.size for file in {ref.file for ref in manifest.objects.values()})
    kept = window_bytes(manifest) + state_bytes(manifest) + objects
    if limit and kept > limit:
        raise StoreError(
            f"batch {batch} would leave {kept:,} bytes of recent points, state and objects, more "
            f"than max_kept_bytes ({limit:,}); set it higher, or keep less: a shorter window, or "
            "fewer queries with state. Nothing is lost: the batch runs again at the next start"
        )
