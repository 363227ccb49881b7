"""Write the pages of docs/ that come from the code: ``make docs``.

A test compares the pages with what this script would write, so they cannot drift.
"""

from pathlib import Path

from sparkswarm.config import settings_table
from sparkswarm.protocol.decision import diagram
from sparkswarm.spark.session import spark_settings_table

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[str, str]:
    """Return the content of every generated page, by file name."""
    return {
        "settings.md": f"""# Settings

Generated from `src/sparkswarm/config.py` by `make docs`; change it there. Each setting is a
field of `sparkswarm.SwarmConfig`.

{settings_table()}""",
        "session.md": f"""# The Spark session

Generated from `src/sparkswarm/spark/session.py` by `make docs`; change it there, or its text in
`scripts/generate_docs.py`.

`spark = sparkswarm.session()` gives a Spark session that has what SWARM needs; `app_name`,
`master` and `config`, a mapping of Spark's own settings, are as in Spark. These are set:

{spark_settings_table()}
**What you have set wins**, be it in `config`, in `spark-defaults.conf`, on the command line of
`spark-submit` or in the environment. `config` goes before the others. On a cluster whose machines
keep Python elsewhere, set `PYSPARK_PYTHON` to its place there.

**A session that runs already is returned as it is.** If you made yours in another way,
`sparkswarm.check_session(spark)` returns what it lacks, one finding a setting: what was found,
what is wanted, why, and whether it can still be changed. A static setting cannot; it needs a new
session. What is found is also logged as a warning, once. Spark Connect is refused.

## What is not set, and why

- **Adaptive query execution stays on**, with all its settings. It coalesces shuffles whose number
  of partitions Spark chose. Ours, `repartitionById(n, column)`, names its number, and Spark leaves
  those alone, however small or empty the partitions are; a test sees to it. But if Spark can prove
  before it runs that there are no rows at all, it removes the shuffle, and no Python task runs.
- **The session's time zone.** It changes how timestamps are read and shown as text, which is for
  you to choose; Python workers get the same instants in every zone.
- **Arrow.** `mapInArrow` always uses it: `spark.sql.execution.arrow.pyspark.enabled` is about
  pandas only.
""",
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
