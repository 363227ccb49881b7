"""Take the pictures of the live map, docs/images/map.png and map-dark.png: ``make pictures``.

Streams the first batches of the demo on a local Spark, then opens the page of that run in
Chromium and goes back to the moments shown. Without Chromium it says so and changes nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from sparkswarm.demo.scene import Scene
from sparkswarm.map.server import serve_in_background
from sparkswarm.observe.journal import IN_CHECKPOINT
from sparkswarm.spark.session import session
from sparkswarm.spark.sources import register_sources

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.map.browser import CHROMIUM, Browser  # noqa: E402

BATCHES, EXECUTORS, SEED = 60, 8, 0
SHOWN, SHOWN_DARK = 22, 20
"""The hotspot is there from batch 20 on."""


def main() -> None:
    """Stream, then take the pictures."""
    if CHROMIUM is None:
        print("no Chromium here: the pictures of the map stay as they are")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stream(Path(folder))
        url = serve_in_background(Path(folder) / "swarm" / IN_CHECKPOINT)
        with Browser(Path(folder) / "profile") as browser:
            images = ROOT / "docs" / "images"
            photograph(browser, url, SHOWN, "executor", False, images / "map.png")
            photograph(browser, url, SHOWN_DARK, "busy", True, images / "map-dark.png")


def stream(folder: Path) -> None:
    """Run the demo's stream until a little after the batches shown."""
    quiet: dict[str, str | bool] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR",
    }
    spark = session("sparkswarm pictures", "local[*]", quiet)
    try:
        register_sources(spark)
        handle = Scene(BATCHES, EXECUTORS, SEED).start(spark, "swarm", str(folder), 1)
        while handle.status().batches < SHOWN + 4:
            time.sleep(0.5)
        handle.stop()
    finally:
        spark.stop()


def photograph(browser: Browser, url: str, batch: int, colour: str, dark: bool, path: Path) -> None:
    """Open the page, go back to a batch, and take a picture."""
    browser.open(url, dark=dark)
    browser.wait_for(f"Number(document.body?.dataset.batch) > {batch}")
    browser.value(
        f"const c = document.getElementById('colour'); c.value = '{colour}';"
        "c.dispatchEvent(new Event('change'))"
    )
    browser.value("document.getElementById('slider').focus()")
    while int(browser.state()["batch"]) > batch:
        before = browser.state()["batch"]
        browser.press("ArrowLeft")
        browser.wait_for(f"document.body.dataset.batch !== '{before}'")
    browser.value("document.getElementById('slider').blur()")
    browser.value("new Promise(r => setTimeout(r, 500))")
    browser.screenshot(path)
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
