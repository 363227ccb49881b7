"""Write the pages of docs/ that come from the code: ``make docs``.

A test compares the pages with what this script would write, so they cannot drift.
"""

from pathlib import Path

from sparkswarm.config import settings_table
from sparkswarm.protocol.decision import diagram

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[str, str]:
    """Return the content of every generated page, by file name."""
    return {
        "settings.md": f"""# Settings

Generated from `src/sparkswarm/config.py` by `make docs`; change it there. Each setting is a
field of `sparkswarm.SwarmConfig`.

{settings_table()}""",
        "decision.md": f"""# The five stages of the decision

Generated from the table `TRANSITIONS` in `src/sparkswarm/protocol/decision.py` by `make docs`.

With `decision="five_stages"` the Coordinator decides as the paper does. A pointer moves right
when throughput rose and left when it did not. Reaching the leftmost stage flips the decision
and puts the pointer back to the start, and so does taking the same decision `beta` times. The
first decision is to do nothing. The names of the stages beside "start" and "flip decision"
are ours; the paper leaves them blank.

```mermaid
{diagram()}```

The default is another decision, by predicted gain: see
[decisions](decisions.md) for why.
""",
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
