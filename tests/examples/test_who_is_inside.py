"""The example that shows who is inside now."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "who_is_inside.py"


def test_the_example_tells_who_is_inside(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "12:00 van-7 enter 1",
        "12:00 van-8 enter 1",
        "12:04 van-7 exit 1",
        "12:09 van-7 enter 2",
        "12:10 van-8 dwell 1",
        "12:10 van-9 enter 2",
        "in the depot: ['van-8']",
        "in the market: ['van-7', 'van-9']",
        "van-7 is at 7.0, 7.0 in [2]",
        "nearest to 2, 1: ['van-8']",
    ]
