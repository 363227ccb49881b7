"""The line that a terminal shows during a run."""

from sparkswarm.observe.describe import describe
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import moved
from sparkswarm.runfile.cli import _Reporter

from ..support.runs import first_plan, progress


def test_the_last_change_is_shown_and_a_refused_one_is_none():
    plan = first_plan()
    change = moved(plan.partitions[0], 0, 1, 100)
    made = Decision(
        round=1,
        kind=DecisionKind.CHANGE,
        reason=Reason.ABOVE_LEVEL,
        changes=(change,),
        executors=(0, 1),
        costs=(-1.0, 1.0),
    )
    refused = Decision(
        round=2,
        kind=DecisionKind.REFUSE,
        reason=Reason.PLAN_CHANGED,
        changes=(change,),
        executors=(0,),
    )
    texts = []
    voice = _Reporter(texts.append)
    voice.batch(progress(0, plan), plan, [refused])
    assert len(texts[-1].splitlines()) == 1
    voice.batch(progress(1, plan), plan, [made, refused])
    voice.batch(progress(2, plan), plan, [])
    assert texts[-1].splitlines()[1] == describe(made)
