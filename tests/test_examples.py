"""The examples run, and say what they should."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_delivery_zones():
    assert runpy.run_path(str(EXAMPLES / "delivery_zones.py"))["main"]() == [
        "12:00 van-7 enter zone-m (Mitte)",
        "12:01 van-8 enter zone-k (Kreuzberg)",
        "12:01 van-8 enter zone-m (Mitte)",
        "12:09 van-7 exit zone-m (Mitte)",
        "12:09 van-7 enter depot (Depot)",
        "12:12 van-8 exit zone-m (Mitte)",
        "12:12 van-8 dwell zone-k (Kreuzberg)",
    ]


def test_ships():
    assert runpy.run_path(str(EXAMPLES / "ships.py"))["main"]() == [
        "01 02:00 Fram enter Longyearbyen",
        "01 09:00 Aurora enter Suva",
        "02 06:00 Fram exit Longyearbyen",
    ]
