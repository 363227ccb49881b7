"""Whether the points that an earlier start kept have columns of the types of this one.

Runs on the driver, once a start of a run that keeps points.
"""

from __future__ import annotations

import pyarrow as pa

from sparkswarm.apps.bound import block_column
from sparkswarm.errors import ConfigError
from sparkswarm.spark.driver.layout import StreamLayout
from sparkswarm.store.blocks import Block
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import Manifest


def check_kept_columns(layout: StreamLayout, manifest: Manifest, files: Files) -> None:
    """Raise ConfigError if a column of kept points has another type than the stream's.

    A block has the columns of the start that wrote it. Most often the newest has them all; those
    that it lacks are looked for in older ones.
    """
    if layout.answer_schema is None:
        return
    wanted = {
        field.name: field
        for field in _columns(layout, layout.answer_schema.columns)
        if field.name not in ("x", "y", "time")
    }
    refs = [ref for some in manifest.blocks.values() for ref in some]
    for ref in sorted(refs, key=lambda ref: ref.meta.newest, reverse=True):
        if not wanted:
            return
        kept = Block.from_bytes(files.mmap(ref.file), ref.offset, ref.meta).points.schema
        for before in kept:
            if before.name in wanted:
                _check_type(before, wanted.pop(before.name), files.root)


def _check_type(before: pa.Field, now: pa.Field, folder: str) -> None:
    """Raise ConfigError if columns of two starts have no type in common."""
    both = pa.schema([before]), pa.schema([now])
    try:
        pa.unify_schemas(both, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(
            f"column {now.name.removeprefix('.')} of the points is {now.type}, but the points that "
            f"{folder} keeps have it as {before.type}; cast it to that, give it another name, or "
            "start with another checkpoint"
        ) from error


def _columns(layout: StreamLayout, answered: pa.Schema) -> list[pa.Field]:
    """Return the columns of points that blocks have, under the names that they have there."""
    columns = {field.name: field for field in answered}
    if application := layout.application:
        for name in application.point_names.values():
            columns[block_column(name)] = application.point_schema.field(name).with_name(
                block_column(name)
            )
    return list(columns.values())
