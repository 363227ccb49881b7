"""Planted bugs: faults in the protocol that the simulator must be able to detect.

A fuzzer that finds nothing is only credible if it finds these. Each bug is a small ``if`` at the
place that it breaks, and is off unless a run enables it by name.
"""

from __future__ import annotations

from enum import StrEnum


class Bug(StrEnum):
    """A bug that can be switched on for a run."""

    NO_FORWARDING = "no-forwarding"
    FORWARDING_STOPS_EARLY = "forwarding-stops-early"
    INDEX_BEFORE_TAKEOVER = "index-before-takeover"
    STATE_LEFT_BEHIND = "state-left-behind"
    ALGORITHM_1_AS_PRINTED = "algorithm-1-as-printed"
    ACKNOWLEDGED_WITHOUT_COUNT = "acknowledged-without-count"
    TWO_COORDINATORS = "two-coordinators"
    ID_REUSE = "id-reuse"
    BORDER_CELL_TWICE = "border-cell-twice"
    TOMBSTONE_LOST = "tombstone-lost"
    SEEN_NOT_MOVED = "seen-not-moved"
    FENCE_IGNORED = "fence-ignored"
    DETAILS_LEFT_BEHIND = "details-left-behind"

    @property
    def meaning(self) -> str:
        """One sentence on what the bug breaks."""
        return MEANINGS[self]


MEANINGS = {
    Bug.NO_FORWARDING: "m_high drops tuples that still reach it for a partition that it gave away.",
    Bug.FORWARDING_STOPS_EARLY: (
        "m_high stops forwarding when the next round starts, as the paper has it, whether or "
        "not all GlobalIndex machines have updated."
    ),
    Bug.INDEX_BEFORE_TAKEOVER: "m_low serves a partition before its handover has arrived.",
    Bug.STATE_LEFT_BEHIND: "The running counts of queries stay with m_high.",
    Bug.ALGORITHM_1_AS_PRINTED: "Queries are routed by Algorithm 1 as the paper prints it.",
    Bug.ACKNOWLEDGED_WITHOUT_COUNT: (
        "m_q takes the acknowledgement of a snapshot query as the end of its results, without "
        "counting them."
    ),
    Bug.TWO_COORDINATORS: "An old Coordinator keeps deciding, and nobody checks terms.",
    Bug.ID_REUSE: "The Coordinator grants the same partition ids again.",
    Bug.BORDER_CELL_TWICE: "A point on the border of two cells is routed to both.",
    Bug.TOMBSTONE_LOST: "A split forgets that a query was removed.",
    Bug.SEEN_NOT_MOVED: "The record of processed tuples is not handed over.",
    Bug.FENCE_IGNORED: "An executor that was declared dead keeps running and writing.",
    Bug.DETAILS_LEFT_BEHIND: (
        "Only the rectangle of a moved query arrives, not the application's columns."
    ),
}
