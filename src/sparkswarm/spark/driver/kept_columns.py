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

    The newest block has the columns of all: each start checks it.
    """
    refs = [ref for some in manifest.blocks.values() for ref in some]
    if layout.answer_schema is None or not refs:
        return
    newest = max(refs, key=lambda ref: ref.meta.newest)
    content = files.mmap(newest.file)
    kept = Block.from_bytes(content, newest.offset, newest.meta).points.schema
    for field in _columns(layout, layout.answer_schema.columns):
        if field.name not in kept.names or field.name in ("x", "y", "time"):
            continue
        before = kept.field(field.name)
        both = pa.schema([before]), pa.schema([field])
        try:
            pa.unify_schemas(both, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(
                f"column {field.name.removeprefix('.')} of the points is {field.type}, but the "
                f"points that {files.root} keeps have it as {before.type}; cast it to that, give "
                "it another name, or start with another checkpoint"
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
