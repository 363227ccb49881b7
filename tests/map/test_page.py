"""The page in a real browser: it loads, follows, replays, and shows hostile names as text."""

import contextlib
import json
import math
import os
import random
import threading
import time
from dataclasses import replace

import pytest

from sparkswarm import SwarmConfig
from sparkswarm.map.server import MapServer
from sparkswarm.observe.journal import Journal
from sparkswarm.observe.progress import Loan

from ..support.runs import after_a_move, after_sharing, decided, first_plan, progress, wandering
from ..support.tasks import register
from .browser import CHROMIUM, Browser
from .test_fences import Checkpoint

# On CI a missing browser is an error: otherwise nobody would notice that nothing was tested.
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="there is no Chromium on this machine"
)

LAND_IS_THERE = (
    "performance.getEntriesByType('resource')"
    ".some(e => e.name.endsWith('land.json') && e.responseEnd > 0)"
)
THREE_FRAMES = (
    "new Promise(r => { const f = n => n ? requestAnimationFrame(() => f(n - 1)) : r(); f(3); })"
)

HOSTILE = "<img src=x onerror=\"document.body.dataset.hacked='yes'\"><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


@pytest.fixture
def server(path):
    with MapServer(path) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def page(browser, server):
    """Return a function that opens the page and waits for a batch; it must not fail anywhere."""

    def open_page(batch=None, **window):
        browser.open(server.url, **window)
        if batch is not None:
            browser.wait_for(f"document.body?.dataset.batch === '{batch}'")
            browser.wait_for(LAND_IS_THERE)
            browser.value(THREE_FRAMES)
        return browser

    yield open_page
    assert browser.errors == []
    assert "hacked" not in browser.state()


def write(path, run, policy="swarm", clock=time.time):
    journal = Journal(path, policy, clock=clock, rebalances=policy == "swarm")
    for told in run:
        journal(*told)
    return journal


def element(name):
    return f"document.getElementById('{name}')"


def click(browser, name):
    browser.value(f"{element(name)}.click()")


def shows(browser, batch):
    browser.wait_for(f"document.body.dataset.batch === '{batch}'")


def test_it_shows_the_last_batch_of_a_run(page, path):
    write(path, wandering(6))
    browser = page(5)
    state = browser.state()
    state.pop("fences", None)  # which are asked for on their own
    assert state == {
        "state": "live", "frames": "6", "following": "true", "batch": "5", "partitions": "4",
        "moves": "1",
    }  # fmt: skip
    assert "policy swarm · 4 executors · 4 partitions · 1,005 points" in browser.text("#facts")
    assert "3 bad rows" in browser.text("#facts")
    assert browser.text("[data-measure=throughput]") == "2,010"
    assert browser.text("[data-measure=latency]") == "0.50 s"
    assert browser.text("[data-measure=lag]") == "12 s"
    assert browser.text("[data-measure=balance]") == "0.63"
    assert browser.text("[data-measure=queries]") == "7"
    rows = "[...document.querySelectorAll('#rows tr')].map(r => r.children[2].textContent)"
    assert browser.value(rows) == ["10", "20", "30", "40"]
    assert "batch 5" in browser.value(f"{element('canvas')}.getAttribute('aria-label')")


def test_the_latency_is_named_after_what_it_measures(page, path):
    """In micro-batches it is the time of a batch, in Real-time Mode that of most points."""
    title = "[data-measure=latency]"
    titles = f"document.querySelector('{title}').previousElementSibling.textContent"
    journal = write(path, wandering(2))
    browser = page(1)
    assert browser.value(titles) == "Latency, seconds per batch"
    last, plan, decisions = list(wandering(3))[-1]
    latency = {("0.005",): 90, ("0.01",): 100, ("+Inf",): 100}
    journal(replace(last, latency=latency), plan, decisions)
    shows(browser, 2)
    assert browser.value(titles) == "Latency, seconds for 99% of the points"
    assert browser.text(title) == "0.010 s"


def test_it_draws_land_and_partitions(page, path):
    write(path, wandering(1))
    browser = page(0)
    colours = (
        "(() => { const c = document.getElementById('canvas'); const all = new Set();"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "for (let i = 0; i < d.length; i += 4) all.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
        "return all.size; })()"
    )
    # Four executors' colours, over land and over sea.
    browser.wait_for(f"{colours} > 8")
    with_land = browser.value(f"{element('canvas')}.toDataURL()")
    browser.command("Network.enable")
    browser.command("Network.setBlockedURLs", urls=["*land.json"])
    try:
        browser.open(browser.value("location.href"))
        shows(browser, 0)
        browser.wait_for(f"{colours} > 4")
        assert browser.value(f"{element('canvas')}.toDataURL()") != with_land
    finally:
        browser.command("Network.setBlockedURLs", urls=[])
        browser.command("Network.disable")
    browser.errors.clear()  # of the request that was blocked


def test_no_outline_crosses_the_whole_map(page, path):
    """Russia lies on both sides of 180 degrees; Antarctica goes around the pole."""
    write(path, wandering(1))
    browser = page(0)
    widest = (
        "Promise.all([import('/drawing.js'), fetch('/land.json').then(r => r.json())])"
        ".then(([{ landOf }, file]) => landOf(file)).then(({ land, borders }) =>"
        " Math.max(...[...land, ...borders].flatMap(({ places }) =>"
        " places.slice(1).map(([x], i) => Math.abs(x - places[i][0])))))"
    )
    assert 0 < browser.value(widest) < 180
    beyond = (
        "fetch('/land.json').then(r => r.json()).then(async file =>"
        " (await import('/drawing.js')).landOf(file).land"
        ".filter(({ west, east }) => west < -180 || east > 180).length)"
    )
    assert browser.value(beyond) >= 2


@pytest.mark.parametrize(
    ("low", "high", "count", "degrees", "expected"),
    [
        (-180, 180, 3, "true", [-180, 0, 180]), (-90, 90, 4, "true", [-90, -45, 0, 45, 90]),
        (-60, 75, 3, "true", [-45, 0, 45]), (24, 50, 5, "true", [30, 40, 50]),
        (0, 900, 3, "false", [0, 500]), (0, 1, 3, "false", [0, 0.5, 1]),
    ],
)  # fmt: skip
def test_axes_have_round_numbers(page, path, low, high, count, degrees, expected):
    write(path, wandering(1))
    found = f"import('/drawing.js').then(m => m.ticks({low}, {high}, {count}, {degrees}))"
    assert page(0).value(found) == expected


def test_one_is_not_several(page, path):
    plan = first_plan(1)
    write(path, [(progress(0, plan), plan, [])])
    facts = page(0).text("#facts")
    assert " 1 executor ·" in facts
    assert " 1 partition ·" in facts


def test_it_waits_for_the_first_batch_and_then_follows(page, path):
    run = wandering(3)
    browser = page()
    browser.wait_for("document.body?.dataset.state === 'waiting'")
    assert browser.text("#state") == "waiting for the first batch"
    assert browser.value(f"{element('slider')}.disabled")
    assert browser.text("#picked").startswith("No partitions yet")
    assert browser.value(f"{element('canvas')}.hidden")
    journal = write(path, run[:1])
    shows(browser, 0)
    for told in run[1:]:
        journal(*told)
        shows(browser, told[0].batch)
    assert browser.state()["frames"] == "3"


def test_moves_are_shown_as_they_happen(page, path):
    before = first_plan()
    journal = write(path, [(progress(0, before), before, [])])
    browser = page(0)
    assert browser.state()["moves"] == "0"
    still = browser.value(f"{element('canvas')}.toDataURL()")
    after = after_a_move(before, 0, 3)
    owner = before.partitions[0].owners[0]
    journal(progress(1, after), after, decided(1))
    shows(browser, 1)
    assert browser.state()["moves"] == "1"
    fresh = after.partitions[-1].id
    assert browser.text("#moved") == f"Moved before batch 1: p{fresh} {owner}→3"
    assert browser.value(f"{element('canvas')}.toDataURL()") != still
    shared = after_sharing(after, 0, after.partitions[0].owners[0], 0)
    journal(progress(2, shared), shared, [])
    shows(browser, 2)
    fresh = shared.partitions[-1].id
    assert browser.text("#moved") == f"Moved before batch 2: p{fresh} +0"
    assert "shared by several" in browser.text("#legend-text")
    taken = after_sharing(shared, len(shared.partitions) - 1, 0, 2)
    journal(progress(3, taken), taken, [])
    shows(browser, 3)
    owner = after.partitions[0].owners[0]
    assert browser.text("#moved") == f"Moved before batch 3: p{fresh + 1} {owner}→2"
    alone = after_sharing(taken, len(taken.partitions) - 1, 0)
    journal(progress(4, alone), alone, [])
    shows(browser, 4)
    assert browser.text("#moved") == f"Moved before batch 4: p{fresh + 2} -2"


def test_the_slider_replays_the_run_by_keyboard(page, path):
    run = wandering(8)
    journal = write(path, run[:7])
    browser = page(6)
    browser.value(f"{element('slider')}.focus()")
    browser.press("ArrowLeft")
    shows(browser, 5)
    assert browser.state()["following"] == "false"
    assert "batch 5" in browser.value(f"{element('slider')}.getAttribute('aria-valuetext')")
    assert browser.text("#decisions li .round") == "round 5"
    browser.press("Home")
    shows(browser, 0)
    assert browser.text("[data-measure=throughput]") == "2,000"
    journal(*run[7])
    browser.wait_for("document.body.dataset.frames === '8'")
    assert browser.state()["batch"] == "0", "a new batch must not take the reader away"
    browser.value(f"{element('live')}.focus()")
    browser.press("Enter")
    shows(browser, 7)
    assert browser.state()["following"] == "true"


def test_buttons_step_and_play(page, path):
    write(path, wandering(5))
    browser = page(4)
    for name, batch in (("first", 0), ("forward", 1), ("forward", 2), ("back", 1)):
        click(browser, name)
        shows(browser, batch)
    click(browser, "play")
    browser.wait_for("document.body.dataset.following === 'true'")
    shows(browser, 4)
    assert browser.text("#play") == "play"


def test_every_control_is_reached_by_the_tab_key(page, path):
    write(path, wandering(2))
    browser = page(1)
    reached = []
    for _ in range(16):
        browser.press("Tab")
        reached.append(
            browser.value("document.activeElement.id || document.activeElement.className")
        )
    wanted = [
        "colour",
        "labels",
        "moves",
        "loans",
        "canvas",
        "first",
        "back",
        "play",
        "forward",
        "live",
    ]
    assert reached[: len(wanted) + 1] == [*wanted, "slider"]
    named = (
        "[...document.querySelectorAll('button, input, select')].every(e => "
        "(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))"
    )
    assert browser.value(named)


def test_a_partition_is_picked_by_pointer_and_by_keyboard(page, path):
    plan = first_plan()
    write(path, [(progress(0, plan), plan, [])])
    browser = page(0)
    browser.value(f"{element('canvas')}.focus()")
    browser.press("ArrowRight")
    first, last = plan.partitions[0], plan.partitions[-1]
    browser.wait_for(f"{element('picked')}.textContent.startsWith('p{first.id}: executor 0;')")
    browser.press("ArrowLeft")
    browser.wait_for(f"{element('picked')}.textContent.startsWith('p{last.id}: executor 3;')")
    box = browser.value(f"{element('canvas')}.getBoundingClientRect().toJSON()")
    x, y = box["x"] + 60, box["y"] + box["height"] - 40  # south-west
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    corner = next(p for p in plan.partitions if p.cells[:2] == (0, 0))
    browser.wait_for(f"{element('picked')}.textContent.startsWith('p{corner.id}: ')")
    assert "125°W" in browser.text("#picked")


@pytest.mark.parametrize(
    ("by", "says"),
    [("executor", "a colour and a number"), ("busy", "work of the partition's executor"),
     ("density", "mean of the executor")],
)  # fmt: skip
def test_the_legend_says_what_colours_mean(page, path, by, says):
    write(path, wandering(2))
    browser = page(1)
    before = browser.value(f"{element('canvas')}.toDataURL()")
    browser.value(f"{element('colour')}.value = '{by}'")
    browser.value(f"{element('colour')}.dispatchEvent(new Event('change'))")
    browser.wait_for(f"{element('legend-text')}.textContent.includes({json.dumps(says)})")
    after = browser.value(f"{element('canvas')}.toDataURL()")
    assert (after == before) == (by == "executor")
    assert browser.text("#legend-high") == {"executor": "", "busy": "40 ms", "density": "2"}[by]


def test_points_per_cell_are_exact_where_the_journal_counts_partitions(page, path):
    plan = first_plan()
    write(path, [(progress(0, plan), plan, [])])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    # 200 cells each: 1, 2, 3 and 4 points in a cell.
    lines[2]["loads"] = [[p.id, 200 * (i + 1)] for i, p in enumerate(plan.partitions)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    browser = page(0)
    browser.value(f"{element('colour')}.value = 'density'")
    browser.value(f"{element('colour')}.dispatchEvent(new Event('change'))")
    browser.wait_for(f"{element('legend-high')}.textContent === '4'")
    assert browser.text("#legend-low") == "1"
    assert "mean" not in browser.text("#legend-text")


def test_a_page_with_a_token_follows_and_hides_it(browser, path):
    write(path, wandering(2))
    with MapServer(path, "0.0.0.0") as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        browser.open(server.url.replace("0.0.0.0", "127.0.0.1"))
        browser.wait_for("document.body?.dataset.batch === '1'")
        assert "token" not in browser.value("location.href")
        assert browser.errors == []
        server.shutdown()


def test_loans_are_arrows_that_fade(page, path):
    plan = first_plan()
    lent = replace(progress(0, plan), loans=(Loan(0, 3, plan.partitions[0].id, 400),), lent=400)
    journal = write(path, [(lent, plan, [])])
    browser = page(0)
    drawn = [browser.value(f"{element('canvas')}.toDataURL()")]
    assert "arrows: points lent" in browser.text("#legend-text")
    for batch in (1, 2, 3):
        journal(progress(batch, plan), plan, [])
        shows(browser, batch)
        drawn.append(browser.value(f"{element('canvas')}.toDataURL()"))
    assert len(set(drawn)) == 4, "it fades in each batch, then is gone"
    click(browser, "loans")
    browser.wait_for("location.hash === '#loans=0'")
    assert browser.value(f"{element('canvas')}.toDataURL()") == drawn[3]


def test_rows_to_read_are_told_where_they_are_known(page, path):
    plan = first_plan()
    journal = write(path, [(progress(0, plan), plan, [])])
    browser = page(0)
    assert "to read" not in browser.text("#facts")
    journal(replace(progress(1, plan), unread_rows=12_345), plan, [])
    shows(browser, 1)
    assert "12,345 rows to read" in browser.text("#facts")


def test_the_url_keeps_what_is_shown(page, path, server):
    write(path, wandering(6))
    browser = page(5)
    assert browser.value("location.hash") == ""
    browser.value(f"{element('colour')}.value = 'density'")
    browser.value(f"{element('colour')}.dispatchEvent(new Event('change'))")
    click(browser, "labels")
    click(browser, "first")
    click(browser, "forward")
    wanted = "#colour=density&labels=0&batch=1"
    browser.wait_for(f"location.hash === '{wanted}'")
    browser.open("about:blank")
    browser.open(server.url + wanted)
    shows(browser, 1)
    assert browser.value(f"{element('colour')}.value") == "density"
    assert not browser.value(f"{element('labels')}.checked")
    assert browser.state()["following"] == "false"
    click(browser, "live")
    browser.wait_for("location.hash === '#colour=density&labels=0'")
    shows(browser, 5)
    browser.value("location.hash = ''")
    browser.wait_for(f"{element('colour')}.value === 'executor'")


def test_hostile_names_show_as_text(page, path):
    plan = first_plan()
    told = (progress(0, plan, bad=HOSTILE), plan, decided(0))
    write(path, [told], policy=HOSTILE)
    hostile = json.dumps(HOSTILE)[1:-1]
    text = path.read_text()
    path.write_text(text.replace("do nothing", hostile).replace("nothing arrived", hostile))
    entry = {
        "entry": "plan", "version": 9, "executors": 4, "whole": True, "retired": [],
        "created": [
            {"id": HOSTILE, "cells": [0, 0, 5, 20], "owners": [3]},
            {"id": 99, "cells": [5, 0, 40, 20], "owners": [0]},
        ],
    }  # fmt: skip
    batch = json.loads(path.read_text().splitlines()[2]) | {"batch": 1}
    with path.open("a") as file:
        for line in (entry, batch):
            file.write(json.dumps(line) + "\n")
    browser = page(1)
    assert browser.text("#decisions .what") == browser.text("#decisions .reason") == HOSTILE
    assert HOSTILE in browser.text("#note")
    assert HOSTILE in browser.text("#facts")
    assert f"p{HOSTILE} 0→3" in browser.text("#moved")
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.scripts.length") == 1
    assert "hacked" not in browser.state()


def test_an_injected_script_would_not_run(page, path):
    write(path, wandering(1))
    browser = page(0)
    browser.value(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(HOSTILE)})")
    browser.value("new Promise(done => setTimeout(done, 300))")
    assert "hacked" not in browser.state()
    assert any("Content Security Policy" in error for error in browser.errors)
    browser.errors.clear()


def test_a_run_that_is_over_says_so(page, path):
    write(path, wandering(2), clock=lambda: time.time() - 7000)
    browser = page(1)
    assert browser.state()["state"] == "over"
    assert "no batch for 117 minutes" in browser.text("#state")


@pytest.mark.parametrize("policy", ["swarm", "static_uniform"])
def test_a_policy_that_does_not_rebalance_is_explained(page, path, policy):
    write(path, wandering(1), policy=policy)
    browser = page(0)
    assert browser.value(f"{element('note')}.hidden") is (policy == "swarm")
    assert ("static_uniform, does not rebalance" in browser.text("#note")) is (policy != "swarm")


def test_odd_lines_hide_nothing(page, path):
    run = wandering(2)
    journal = write(path, run[:1])
    with path.open("a") as file:
        file.write('{"entry":"batch"}\n{"entry":"new"}\nnull\n{"entry":"ba\n[]\n')
    journal(*run[1])
    assert page(1).state()["frames"] == "2"


def test_a_batch_that_runs_again_replaces_the_first(page, path):
    run = wandering(4)
    write(path, run)
    write(path, run[3:])
    browser = page(3)
    assert browser.state()["frames"] == "4"
    assert browser.value("document.querySelectorAll('#decisions li').length") == 4


def test_another_journal_in_the_place_is_shown_instead(page, path):
    write(path, wandering(9))
    browser = page(8)
    path.unlink()
    write(path, wandering(12)[10:])
    shows(browser, 11)
    assert browser.state()["frames"] == "2"


def test_a_server_that_is_gone_leaves_the_replay(page, path, server):
    write(path, wandering(3))
    browser = page(2)
    browser.command("Network.enable")
    browser.command("Network.setBlockedURLs", urls=["*events*"])
    try:
        browser.wait_for("document.body.dataset.state === 'lost'")
        click(browser, "first")
        shows(browser, 0)
    finally:
        browser.command("Network.setBlockedURLs", urls=[])
        browser.command("Network.disable")
    browser.wait_for("document.body.dataset.state === 'live'")
    browser.errors.clear()  # of the requests that were blocked


def test_a_page_left_open_does_not_grow(page, path):
    run = wandering(9000)
    journal = write(path, run[:3000])
    browser = page(2999)

    def size():
        browser.command("HeapProfiler.collectGarbage")
        nodes = browser.command("Memory.getDOMCounters")["nodes"]
        return nodes, browser.command("Runtime.getHeapUsage")["usedSize"]

    nodes, heap = size()
    assert int(browser.state()["frames"]) <= 2000
    for told in run[3000:]:
        journal(*told)
    shows(browser, 8999)
    later_nodes, later_heap = size()
    assert int(browser.state()["frames"]) <= 2000
    assert browser.value("document.querySelectorAll('*').length") < 800
    assert later_nodes < nodes + 500
    assert later_heap < 1.3 * heap
    browser.value(f"{element('slider')}.focus()")
    browser.press("Home")
    browser.wait_for("document.body.dataset.following === 'false'")
    assert int(browser.state()["batch"]) < 20, "the beginning can still be seen, if coarsely"
    assert "batches to" in browser.text("#when")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 420, 800, 1280])
def test_it_fits_the_window_and_can_be_read(page, path, width, dark):
    write(path, wandering(2, executors=24))
    browser = page(1, width=width, dark=dark)
    assert browser.value("document.documentElement.scrollWidth") <= width
    tops = "['map', 'timelines'].map(i => document.getElementById(i).getBoundingClientRect().top)"
    of_map, of_timelines = browser.value(tops)
    assert (of_timelines > of_map) == (width < 820)
    for selector in ("#facts", "#state", "#legend-text", "#when", "#moved", "#decisions .reason",
                     "#live", "#play", "figcaption span", "th", "td", "footer"):  # fmt: skip
        assert contrast(browser, selector) >= 4.5, selector


@pytest.fixture
def live(browser, tmp_path):
    """Return a function that shows a checkpoint with fences and objects."""
    plan = first_plan()
    config = SwarmConfig(
        bounds=plan.grid.bounds.edges, grid=(40, 20), executors=4, policy="static_uniform"
    )
    made = Checkpoint(tmp_path, config)
    made.commit(at=100)
    ring = [(-110 + 8 * math.cos(a / 5), 38 + 6 * math.sin(a / 5)) for a in range(31)]
    text = ", ".join(f"{x} {y}" for x, y in ring)
    hole = ", ".join(f"{-110 + x} {38 + y}" for x, y in [(-1, -1), (1, -1), (1, 1), (-1, -1)])
    star = f"POLYGON (({text}, {ring[0][0]} {ring[0][1]}), ({hole}))"
    made.commit(
        {"op": "register", "id": "desert", "geometry": star, "properties": HOSTILE},
        {"op": "register", "id": "port", "geometry": "POINT (-80 32)", "radius_m": 400_000.0},
        register("plains", -100.0, 36.0, -88.0, 46.0),
    )
    rng = random.Random(7)
    places = [(rng.gauss(-80, 2), rng.gauss(32, 1.5)) for _ in range(400)]
    made.keep(
        ("van-7", -110.0, 42.0, 300, ["desert"]),
        *((f"ship-{i}", x, y, 300, ["port"]) for i, (x, y) in enumerate(places)),
    )
    made.commit(at=300)
    path = tmp_path / "journal" / "journal.jsonl"
    path.parent.mkdir()
    write(path, wandering(2))

    def open_page(**window):
        with MapServer(path) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            browser.open(server.url, **window)
            browser.wait_for("document.body?.dataset.fences === '3'")
            yield browser
            server.shutdown()

    return contextlib.contextmanager(open_page)


def test_fences_and_objects_are_drawn_and_tell_their_details_on_a_click(live):
    with live() as browser:
        inked = f"{element('canvas')}.toDataURL().length"
        browser.wait_for(f"{inked} > 5000")
        both = browser.value(f"{element('canvas')}.toDataURL()")
        for name in ("fences", "objects"):
            click(browser, name)
            browser.wait_for(f"{element('canvas')}.toDataURL() !== {json.dumps(both)}")
            click(browser, name)
            browser.wait_for(f"{element('canvas')}.toDataURL() === {json.dumps(both)}")
        click_at(browser, -110.0, 42.0)
        browser.wait_for(f"{element('details')}.textContent.includes('fence desert')")
        text = browser.text("#details")
        assert "1 object inside" in text
        assert HOSTILE in text
        assert "nearest object van-7 at -110, 42" in text
        assert "in desert since" in text
        click_at(browser, -110.0 + 0.6, 38.0 - 0.4)  # in the hole
        browser.wait_for(f"!{element('details')}.textContent.includes('fence')")
        assert browser.errors == []
        assert "hacked" not in browser.state()


def click_at(browser, longitude, latitude):
    """Click on a place of the map."""
    box = browser.value(f"{element('canvas')}.getBoundingClientRect().toJSON()")
    x = box["x"] + 56 + (box["width"] - 56) * (longitude + 125) / 59
    y = box["y"] + (box["height"] - 20) * (50 - latitude) / 26
    for kind in ("mousePressed", "mouseReleased"):
        browser.command(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
        )


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (420, False), (420, True)]
)
def test_a_map_with_fences_fits_the_window_and_can_be_read(live, width, dark, tmp_path):
    with live(width=width, dark=dark) as browser:
        click_at(browser, -80.0, 32.0)
        browser.wait_for(f"{element('details')}.textContent.includes('fence port')")
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert contrast(browser, "#details") >= 4.5
        browser.screenshot(tmp_path / "map.png", whole=True)
        assert browser.errors == []


def contrast(browser, selector):
    """Return the contrast of an element's text with what is behind it, as WCAG has it."""
    both = (
        "(() => { const found = document.querySelector(" + json.dumps(selector) + ");"
        "const ink = getComputedStyle(found).color; let paper = found;"
        "while (getComputedStyle(paper).backgroundColor === 'rgba(0, 0, 0, 0)')"
        "  paper = paper.parentElement;"
        "return [ink, getComputedStyle(paper).backgroundColor]"
        "  .map(c => c.match(/[0-9.]+/g).slice(0, 3).map(Number)); })()"
    )
    light, dim = sorted(map(luminance, browser.value(both)), reverse=True)
    return (light + 0.05) / (dim + 0.05)


def luminance(colour):
    parts = [c / 255 for c in colour]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
