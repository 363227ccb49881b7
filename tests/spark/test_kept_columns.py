"""Points that an earlier start kept must have columns of this start's types."""

import re
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from sparkswarm import ConfigError, Sliding, Subscriptions
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.kept_columns import check_kept_columns
from sparkswarm.spark.driver.layout import StreamLayout
from sparkswarm.spark.task_output import AnswerSchema
from sparkswarm.store.blocks import Block, blocks_to_bytes
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import BlockRef, Manifest

from ..support.strategies import grid_of
from ..support.tasks import bind

GRID = grid_of(4, 4)


def layout_of(kind, application=None):
    columns = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    if application is None:
        columns = columns.append(pa.field(".speed", kind))
    return StreamLayout(
        results=StructType(),
        has_operations=False,
        has_time=True,
        window=Sliding("1 day"),
        application=application,
        answer_schema=AnswerSchema(names=tuple(columns.names), columns=columns),
    )


def manifest_with(files, *kinds):
    """Return a manifest that keeps a point with a speed of each kind, None for without, in time."""
    plan, kept = Plan.initial(GRID, 1), []
    for time, kind in enumerate(kinds):
        table = pa.table({"id": [1], "x": [1.0], "y": [1.0], "time": [time]})
        if kind is not None:
            table = table.append_column(".speed", pa.nulls(1, kind))
        block = Block.concat([table], GRID)
        content, (offset,) = blocks_to_bytes([block])
        ref = files.write(f"blocks/{time}", content, 1)
        kept.append(BlockRef(cells=GRID.cells, meta=block.meta, file=ref, offset=offset))
    return replace(Manifest.initial(plan.partitions), blocks={plan.partitions[0].id: tuple(kept)})


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        (pa.int64(), pa.int64(), True),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.string(), False),
        (pa.timestamp("us", "UTC"), pa.float64(), False),
    ],
)
@pytest.mark.parametrize("of_application", [False, True])
def test_a_column_with_another_type_is_refused_in_our_words(
    tmp_path, before, now, fits, of_application
):
    files, application = Files(str(tmp_path)), None
    if of_application:
        columns = pa.schema([("speed", now)])
        application = bind(subscriptions_of(now), point_columns=columns)
    layout, manifest = layout_of(now, application), manifest_with(files, before)
    if fits:
        check_kept_columns(layout, manifest, files)
        return
    with pytest.raises(
        ConfigError, match=rf"column speed of the points is {now}, but .*{re.escape(str(before))}"
    ):
        check_kept_columns(layout, manifest, files)


def test_a_column_that_a_start_in_between_did_not_keep_is_looked_for_in_older_points(tmp_path):
    files = Files(str(tmp_path))
    manifest = manifest_with(files, pa.int64(), None, None)
    check_kept_columns(layout_of(pa.int64()), manifest, files)
    with pytest.raises(ConfigError, match=r"column speed of the points is string, but .* int64"):
        check_kept_columns(layout_of(pa.string()), manifest, files)


def subscriptions_of(kind):
    kinds = {pa.string(): "text", pa.int64(): "number", pa.float64(): "number"}
    return Subscriptions({"speed": kinds[kind]})


def test_without_kept_points_any_type_will_do(tmp_path):
    files = Files(str(tmp_path))
    empty = Manifest.initial(Plan.initial(GRID, 1).partitions)
    check_kept_columns(layout_of(pa.string()), empty, files)
    check_kept_columns(
        replace(layout_of(pa.string()), answer_schema=None), manifest_with(files, pa.int64()), files
    )
