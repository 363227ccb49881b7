"""With the checkpoint in a remote store nothing is different, nor on several hosts."""

from __future__ import annotations

import threading

import pytest

from sparkswarm.errors import TakenOverError
from sparkswarm.spark.driver.hadoop_files import hadoop_creator
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files, Folder
from sparkswarm.store.writers import NumberedRecords

from ..behaviour.test_results import test_results_are_those_of_brute_force

__all__ = ["test_results_are_those_of_brute_force"]

pytestmark = pytest.mark.remote


def files_of(spark, checkpoint, tmp_path):
    return Files(checkpoint, cache=str(tmp_path / "cache"), creator=hadoop_creator(spark))


def test_of_many_that_create_a_file_one_succeeds(spark, checkpoint, tmp_path):
    files = files_of(spark, checkpoint, tmp_path)
    for number in range(10):
        name, won = f"commits/{number}.json", []
        ready = threading.Barrier(4)

        def create(content, name=name, won=won, ready=ready):
            ready.wait()
            if files.create(name, content):
                won.append(content)

        threads = [threading.Thread(target=create, args=(b"%d" % i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert files.read(name) == won[0]


def test_a_file_that_is_there_is_not_replaced(spark, checkpoint, tmp_path):
    files = files_of(spark, checkpoint, tmp_path)
    assert files.create("run.json", b"first")
    assert not files.create("run.json", b"second")
    assert files.read("run.json") == b"first"


def test_a_second_driver_fences_the_first(spark, checkpoint, tmp_path):
    first, second = (Epochs(files_of(spark, checkpoint, tmp_path), 10) for _ in range(2))
    first.check_run({"of": "both"})
    first.take_over()
    second.check_run({"of": "both"})
    second.take_over()
    assert second.writer.number == first.writer.number + 1
    commits = NumberedRecords(files_of(spark, checkpoint, tmp_path), Folder.COMMITS)
    with pytest.raises(TakenOverError):
        commits.create(0, {"by": "first"}, first.writer)
    assert commits.create(0, {"by": "second"}, second.writer)
    assert commits.read(0) == {"by": "second"}
