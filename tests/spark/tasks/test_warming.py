"""A warming task fetches what its executors want, and nothing fails because of it."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from sparkswarm.spark.tasks import warming
from sparkswarm.spark.tasks.warming import warm_task
from sparkswarm.store.files import FileRef, Files


def test_the_files_of_the_executors_of_a_task_are_fetched_and_no_row_is_returned(
    tmp_path, monkeypatch
):
    files = Files(str(tmp_path / "store"), str(tmp_path / "cache"), copied=True)
    one, two, three = (files.write(f"segments/{name}", b"content") for name in "abc")
    gone = FileRef("segments/gone", 1, 7, 1)
    rows = [pa.record_batch({"anchor": pa.array([executor], pa.int32())}) for executor in (0, 2)]
    with ThreadPoolExecutor(2) as fetchers:
        monkeypatch.setattr(warming, "_fetchers", lambda: fetchers)
        assert not list(warm_task(files, 3, {0: [gone, one], 1: [two], 2: [three]}, rows))
    kept = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert {name for name in kept if not name.startswith(".")} == {"a", "c"}
