"""The examples run, and say what they should."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_delivery_zones():
    names = runpy.run_path(str(EXAMPLES / "delivery_zones.py"))
    assert names["main"]() == {
        "van-1": ["Mitte"],
        "van-2": ["Kreuzberg", "Mitte"],
        "van-4": ["Depot"],
    }
