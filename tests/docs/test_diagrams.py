"""Mermaid diagrams become pictures: every diagram of ours, every word of it, or an error."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("diagrams", ROOT / "scripts" / "diagrams.py")
diagrams = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = diagrams  # dataclasses look their module up there
spec.loader.exec_module(diagrams)

BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, block in enumerate(diagrams.FENCE.findall(page.read_text(encoding="utf-8")))
]


def words(svg):
    """Return every line of text in a picture."""
    return re.findall(r"<tspan[^>]*>([^<]*)</tspan>", svg)


def attribute(svg, kind, name):
    """Return a number of every element of a kind."""
    return [float(value) for value in re.findall(rf'<{kind}[^>]* {name}="([^"]+)"', svg)]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_diagram_of_the_docs_is_drawn_within_its_frame(block):
    svg = diagrams.draw(block)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    assert words(svg)
    lefts, tops = attribute(svg, "rect", "x"), attribute(svg, "rect", "y")
    wides, highs = attribute(svg, "rect", "width"), attribute(svg, "rect", "height")
    assert min(lefts) >= 0
    assert min(tops) >= 0
    assert max(left + wide for left, wide in zip(lefts, wides, strict=True)) <= width
    assert max(top + high for top, high in zip(tops, highs, strict=True)) <= height


def test_a_message_goes_from_one_column_to_another_in_its_order():
    svg = diagrams.draw(
        "sequenceDiagram\n"
        "    participant A as the first<br/>of two\n"
        "    participant B as the other\n"
        "    A->>B: C(m) & R(m)\n"
        "    Note over B: a note\n"
        "    B->>A: back\n"
    )
    assert words(svg) == [
        "the first", "of two", "the other", "C(m) &amp; R(m)", "a note", "back"
    ]  # fmt: skip
    there, back = (
        [float(point.split(",")[0]) for point in points.split()]
        for points in re.findall(r'class="arrow" points="([^"]+)"', svg)
    )
    assert there[0] < there[1]
    assert back == there[::-1]


def test_a_state_machine_has_a_column_for_each_state_and_a_row_for_each_transition():
    svg = diagrams.draw(
        "stateDiagram-v2\n"
        "    direction LR\n"
        '    state "at rest" as REST\n'
        "    [*] --> REST\n"
        "    REST --> MOVING: pushed\n"
        "    MOVING --> MOVING: pushed again\n"
    )
    assert words(svg) == ["● at rest", "MOVING", "pushed", "pushed again"]
    assert svg.count('class="arrow"') == 2


def test_a_node_named_before_its_subgraph_is_drawn_inside_it():
    svg = diagrams.draw(
        "flowchart LR\n"
        "    start([start]) --> inner\n"
        '    subgraph outer["a group"]\n'
        "        direction TB\n"
        '        inner["inside"] -->|"then"| last[("last")]\n'
        "    end\n"
        "    outer -.-> done\n"
    )
    assert {"start", "a group", "inside", "then", "last", "done"} == set(words(svg))
    boxes = {
        kind: [
            [float(value) for value in re.findall(r'\b(?:x|y|width|height)="([\d.]+)"', box)]
            for box in re.findall(rf'<rect class="{kind}" ([^>]+)/>', svg)
        ]
        for kind in ("group", "box")
    }
    ((left, top, wide, high),) = boxes["group"]
    within = [
        box
        for box in boxes["box"]
        if left < box[0] and top < box[1] and box[0] + box[2] < left + wide
        if box[1] + box[3] < top + high
    ]
    assert len(boxes["box"]) == 4
    assert len(within) == 2
    assert svg.count("dashed") == 1


@pytest.mark.parametrize(
    "block",
    [
        "pie\n",
        "sequenceDiagram\n    loop forever\n",
        "stateDiagram-v2\n    A --> B\n",
        "flowchart LR\n    a{a question} --> b\n",
    ],
    ids=lambda block: block.split()[0],
)
def test_what_it_cannot_draw_is_an_error(block):
    with pytest.raises(ValueError, match="cannot draw this line"):
        diagrams.draw(block)


def test_a_page_has_one_arrow_head_for_all_its_diagrams():
    block = "```mermaid\nstateDiagram-v2\n    A --> B: go\n```\n"
    page = diagrams.on_page_markdown(f"# Title\n\n{block}\nText\n\n{block}")
    assert page.count('id="head"') == 1
    assert page.count("go</tspan>") == 2
    assert "```" not in page
