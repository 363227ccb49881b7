"""The paper's claims compared with the results of the experiments.

Owns the list of claims and how each is measured. Claims that do not hold are reported as such.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sparkswarm.experiments.experiment import Experiment, Row
from sparkswarm.experiments.run import Outcome

RIVALS = ("static_history", "static_history_paper")
"""The paper's static grid from a history, divided by work and by the paper's own cost."""

SWARMS = ("swarm", "swarm_lending", "swarm_paper")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, and what was measured here.

    Attributes
    ----------
    what
        The claim.
    paper
        The paper's value.
    ours
        The measured value.
    holds
        Whether they agree; None if the paper gives no value.
    """

    what: str
    paper: str
    ours: str
    holds: bool | None

    def to_json(self) -> Row:
        """Return the JSON form in the output folder."""
        return {"what": self.what, "paper": self.paper, "ours": self.ours, "holds": self.holds}


def claims(experiment: Experiment) -> list[Claim]:
    """Return the claims about the scenario of an experiment."""
    found = [*_headline(experiment)]
    found += _sweep(experiment) if experiment.scenario.is_sweep else _hotspot(experiment)
    return found


def across(experiments: Sequence[Experiment]) -> list[Claim]:
    """Return the claims that compare one scenario with another."""
    by_name = {e.scenario.name: e for e in experiments}
    found = []
    uniform = by_name.get("one-uniform-hotspot")
    comparisons: tuple[tuple[str, str, str, Callable[[float], bool]], ...] = (
        (
            "one-normal-hotspot",
            "SWARM in a normal hotspot against a uniform one",
            "lower",
            lambda ratio: ratio < 0.99,
        ),
        (
            "two-overlapping-hotspots",
            "SWARM in two hotspots against one",
            "similar",
            lambda ratio: abs(ratio - 1.0) < 0.15,
        ),
    )
    for other, what, paper, compare in comparisons:
        if uniform is None or other not in by_name:
            continue
        for swarm in SWARMS:
            here, there = by_name[other].of(swarm), uniform.of(swarm)
            if here is None or there is None:
                continue
            ratio = _over(
                here.units_of_work(*by_name[other].hot_minutes),
                there.units_of_work(*uniform.hot_minutes),
            )
            if ratio is not None:
                found.append(Claim(f"{what} ({swarm})", paper, f"{ratio:.3f} x", compare(ratio)))
    return found


def _headline(experiment: Experiment) -> Iterator[Claim]:
    """Yield units of work and latency against the static grids.

    The paper's two numbers are means over its sweep; for hotspots it has only curves, so there
    is nothing to compare with.
    """
    sweep = experiment.scenario.is_sweep
    span: tuple[int, int | None] = (0, None) if sweep else experiment.hot_minutes
    when = "" if sweep else ", while a hotspot is there"
    numbers: tuple[tuple[str, str, float, Callable[..., float | None], bool], ...] = (
        ("units of work against", "3 x (+200%)", 3.0, Outcome.units_of_work, False),
        ("latency, times lower than", "4 x", 4.0, Outcome.latency_us, True),
    )
    for swarm, rival in itertools.product(SWARMS, RIVALS):
        for what, paper, needed, measure, inverse in numbers:
            ratio = _mean_ratio(experiment, swarm, rival, measure, span, inverse)
            if ratio is not None:
                yield Claim(
                    f"{swarm}: {what} {rival}{when}",
                    f"{paper} on average" if sweep else "no number",
                    f"{ratio:.2f} x",
                    ratio >= needed if sweep else None,
                )


def _mean_ratio(
    experiment: Experiment,
    swarm: str,
    rival: str,
    measure: Callable[..., float | None],
    span: tuple[int, int | None],
    inverse: bool,
) -> float | None:
    """Return the mean of swarm / rival, or its inverse, over the numbers of queries."""
    ratios = []
    for queries in experiment.scenario.queries:
        mine, other = experiment.of(swarm, queries), experiment.of(rival, queries)
        if mine is None or other is None:
            continue
        a, b = measure(mine, *span), measure(other, *span)
        ratios.append(_over(b, a) if inverse else _over(a, b))
    there = [ratio for ratio in ratios if ratio is not None]
    return float(np.mean(there)) if there else None


def _sweep(experiment: Experiment) -> Iterator[Claim]:
    numbers = experiment.scenario.queries
    work = {(o.policy, o.queries): o.units_of_work() for o in experiment.outcomes if not o.failed}
    papers = [p for p in ("static_history", "static_uniform", "replicated") if experiment.of(p)]
    for swarm in SWARMS:
        if experiment.of(swarm) is None:
            continue
        ahead = [
            n
            for n in numbers
            if all((work.get((swarm, n)) or 0) >= (work.get((p, n)) or 0) for p in papers)
        ]
        yield Claim(
            f"{swarm} does the most work of the paper's four",
            "at every number of queries",
            f"at {_millions(ahead)} million",
            len(ahead) == len(numbers),
        )
        last = _over(work.get((swarm, numbers[-1])), work.get((swarm, numbers[-2])))
        if last is not None:
            yield Claim(
                f"{swarm} saturates at the end of the sweep",
                "beyond 32 million",
                f"{numbers[-1] / 1e6:g} million do {last:.2f} x the work of half as many",
                last < 1.1,
            )
    if experiment.of("replicated") is None:
        return
    failed = [n for n in numbers if (o := experiment.of("replicated", n)) and o.failed]
    yield Claim(
        "replicated runs out of memory",
        "above 16 million",
        f"at {_millions(failed)} million" if failed else "never",
        failed[:1] == [32_000_000],
    )
    grids = [p for p in ("static_history", "static_uniform") if experiment.of(p)]
    better = [
        n
        for n in numbers
        if grids
        and ("replicated", n) in work
        and all((work["replicated", n] or 0) > (work.get((p, n)) or 0) for p in grids)
    ]
    yield Claim(
        "replicated beats both static grids",
        "at 8 and 16 million",
        f"at {_millions(better)} million",
        better == [8_000_000, 16_000_000],
    )


def _hotspot(experiment: Experiment) -> Iterator[Claim]:
    start, stop = experiment.hot_minutes
    before = {o.policy: o.units_of_work(0, start) for o in experiment.outcomes if start}
    during = {o.policy: o.units_of_work(start, stop) for o in experiment.outcomes}
    for swarm in SWARMS:
        change = _over(during.get(swarm), before.get(swarm))
        if change is not None:
            yield Claim(
                f"{swarm} during the hotspot against before",
                "higher",
                f"{change:.2f} x",
                change > 1.0,
            )
    papers = ("swarm", "static_history", "static_uniform", "replicated")
    peak = experiment.hottest_minute
    hottest = {o.policy: o.units_of_work(peak, peak + 1) for o in experiment.outcomes}
    there = {p: hottest[p] for p in papers if hottest.get(p) is not None}
    if "static_history" in there and len(there) > 1:
        worst = min(there, key=lambda p: there[p] or 0.0)
        yield Claim(
            "the worst when the hotspot is strongest",
            "static_history",
            worst,
            worst == "static_history",
        )
    calm = {p: before[p] for p in papers[1:] if before.get(p) is not None}
    if "static_history" in calm and len(calm) > 1:
        best = max(calm, key=lambda p: calm[p] or 0.0)
        yield Claim(
            "the best rival before the hotspot", "static_history", best, best == "static_history"
        )


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _millions(numbers: Sequence[int]) -> str:
    return ", ".join(f"{n / 1e6:g}" for n in numbers) or "no"
