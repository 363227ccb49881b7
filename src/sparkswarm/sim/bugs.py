"""Planted bugs: what the harness must find, to be believed when it finds nothing.

Owns their names and what they break. Each is a small ``if`` where it bites; none is ever on
unless a run asks for it by name.
"""

from __future__ import annotations

from enum import StrEnum


class Bug(StrEnum):
    """A mistake that a run can be made to contain."""

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
        """What is broken, in a sentence."""
        return MEANINGS[self]


MEANINGS = {
    Bug.NO_FORWARDING: "m_high drops what still reaches it of a partition it gave away.",
    Bug.FORWARDING_STOPS_EARLY: (
        "m_high stops forwarding when the next round starts, as the paper has it, whether or "
        "not all GlobalIndex machines have updated."
    ),
    Bug.INDEX_BEFORE_TAKEOVER: "m_low serves a partition before its handover has arrived.",
    Bug.STATE_LEFT_BEHIND: "The running counts of queries stay with m_high.",
    Bug.ALGORITHM_1_AS_PRINTED: "Queries are routed by Algorithm 1 as the paper prints it.",
    Bug.ACKNOWLEDGED_WITHOUT_COUNT: (
        "The machine with a snapshot query takes an acknowledgement for all of its results, "
        "without counting them."
    ),
    Bug.TWO_COORDINATORS: "An old Coordinator goes on, and nobody looks at terms.",
    Bug.ID_REUSE: "The Coordinator grants the same partition ids again.",
    Bug.BORDER_CELL_TWICE: "A point on the border of two cells is routed to both.",
    Bug.TOMBSTONE_LOST: "A split forgets that a query was removed.",
    Bug.SEEN_NOT_MOVED: "Which tuples were processed is not handed over.",
    Bug.FENCE_IGNORED: "An executor that was declared dead goes on as if nothing had happened.",
    Bug.DETAILS_LEFT_BEHIND: (
        "Of a query that moves only the rectangle arrives, not what else the application needs."
    ),
}
