"""The walk of objects through their fixes: the compiled rules of events.

Pure: arrays in, arrays out. All times are microseconds, of the objects' own clocks. The oracle in
``tests/apps/event_oracle.py`` states the rules once more, in plain Python.

- Fences that operations changed are left first: ``removed``, or ``replaced`` where a fence of that
  id exists. A fence that is replaced is another fence, which the next fix may enter.
- An object's fixes are taken in the order of their times. One that is older than the object's last
  fix, or than ``silent`` before the clock, is late; of several with one time, the first by x, y and
  fences counts, and the others are repeated. Neither has an effect.
- From one fix to the next goes a leg, which may cross fences; where there was a gap longer than
  ``silent``, or the leg is longer than ``cross``, there is none.
- A fix compares the fences that contain it with those that the object was in: ``enter``, exit
  ``left``, ``inside``, and ``dwell`` at the first fix after that time, once a stay. A fence that
  has expired by the time of the fix is left as ``expired``. After a gap longer than ``silent`` all
  fences are left as ``silent``, and the object is new.
- At last, by the clock: objects whose last fix is ``silent`` before it leave all fences and are
  forgotten; fences that have expired are left.

An exit that no fix shows (all but ``left``) has the time and the place of the object's last fix. So
an object's events never go back in time, whatever comes late.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import BoolArray, ByteArray, FloatArray, LongArray, compiled


class EventKind(IntEnum):
    """What happened between an object and a fence."""

    ENTER = 0
    EXIT = 1
    INSIDE = 2
    DWELL = 3
    CROSS = 4


class ExitReason(IntEnum):
    """Why an object is no longer in a fence; ``NONE`` for events that are no exits."""

    NONE = 0
    LEFT = 1
    SILENT = 2
    REMOVED = 3
    REPLACED = 4
    EXPIRED = 5


_ENTER, _EXIT, _INSIDE, _DWELL = map(int, list(EventKind)[:4])
_NONE, _LEFT, _SILENT, _REMOVED, _REPLACED, _EXPIRED = map(int, ExitReason)

INSERTION_MOST = 32
"""Fences of a fix, and fixes of an object, up to which insertion sort is used."""


class Fixes(NamedTuple):
    """Fixes, those of an object together and in the order of their times.

    ``starts`` has where each object's fixes start, ``low`` and ``high`` the range of each fix in
    ``fence``, ``until`` and ``label``: the fences that contain it, sorted, when each expires, and
    the row with what else is known of it, which events and objects take over.
    """

    starts: LongArray
    time: LongArray
    x: FloatArray
    y: FloatArray
    low: LongArray
    high: LongArray
    fence: LongArray
    until: LongArray
    label: LongArray


class ObjectArrays(NamedTuple):
    """What is known of objects: the last fix, and the fences that each is in, sorted.

    ``starts`` has where each object's fences start. ``known`` is whether there was a fix.
    """

    known: BoolArray
    time: LongArray
    x: FloatArray
    y: FloatArray
    starts: LongArray
    fence: LongArray
    since: LongArray
    until: LongArray
    dwelt: ByteArray
    label: LongArray


class EventRules(NamedTuple):
    """What the walk depends on beside fixes and objects.

    Attributes
    ----------
    clock
        The latest time of earlier batches.
    horizon
        The earliest time that is not silent, as of the clock.
    silent, dwell
        As in :class:`~sparkswarm.apps.events.settings.Events`; a dwell of 0 is none.
    inside
        Whether to report ``inside``.
    cross
        Length of the longest legs that are returned; 0 for none.
    changed, exists
        Sorted ids of the fences that operations changed, and whether each exists still.
    """

    clock: int
    horizon: int
    silent: int
    dwell: int
    inside: bool
    cross: float
    changed: LongArray
    exists: BoolArray


class EventArrays(NamedTuple):
    """Events, those of an object together and in its order; positions are NaN where unknown."""

    object: LongArray
    fence: LongArray
    kind: ByteArray
    reason: ByteArray
    time: LongArray
    since: LongArray
    from_x: FloatArray
    from_y: FloatArray
    x: FloatArray
    y: FloatArray
    label: LongArray


class LegArrays(NamedTuple):
    """Legs of objects: straight lines from one fix to the next, and the time of the next."""

    object: LongArray
    from_x: FloatArray
    from_y: FloatArray
    x: FloatArray
    y: FloatArray
    time: LongArray


class Ignored(NamedTuple):
    """What has no effect."""

    late: int = 0
    """Fixes older than the object's last, or than ``silent_after`` before the clock."""
    repeated: int = 0
    """Fixes of the same time as another of the object."""
    long_legs: int = 0
    """Legs longer than ``cross``."""


@compiled
def order_fixes(objects: LongArray, time: LongArray, number: int) -> tuple[LongArray, LongArray]:
    """Return the order of fixes by object and time, and where those of each object start in it."""
    starts = np.zeros(number + 1, np.int64)
    for i in range(len(objects)):
        starts[objects[i] + 1] += 1
    for o in range(number):
        starts[o + 1] += starts[o]
    free, order = starts[:-1].copy(), np.empty(len(objects), np.int64)
    for i in range(len(objects)):
        order[free[objects[i]]] = i
        free[objects[i]] += 1
    for o in range(number):
        a, b = starts[o], starts[o + 1]
        if b - a > INSERTION_MOST:
            order[a:b] = order[a:b][np.argsort(time[order[a:b]], kind="mergesort")]
            continue
        for j in range(a + 1, b):
            one, k = order[j], j
            while k > a and time[order[k - 1]] > time[one]:
                order[k] = order[k - 1]
                k -= 1
            order[k] = one
    return order, starts


@compiled
def sort_fences(
    low: LongArray, high: LongArray, fence: LongArray, until: LongArray, label: LongArray
) -> None:
    """Sort the fences of each fix, in place."""
    for i in range(len(low)):
        a, b = low[i], high[i]
        if b - a > INSERTION_MOST:
            order = np.argsort(fence[a:b])
            fence[a:b] = fence[a:b][order]
            until[a:b] = until[a:b][order]
            label[a:b] = label[a:b][order]
            continue
        for j in range(a + 1, b):
            one, end, row = fence[j], until[j], label[j]
            k = j
            while k > a and fence[k - 1] > one:
                fence[k] = fence[k - 1]
                until[k] = until[k - 1]
                label[k] = label[k - 1]
                k -= 1
            fence[k] = one
            until[k] = end
            label[k] = row


@compiled
def _comes_first(fixes: Fixes, i: int, j: int) -> bool:
    """Return whether, of two fixes of one time, the first counts: by x, y, and fences."""
    if fixes.x[i] != fixes.x[j]:
        return bool(fixes.x[i] < fixes.x[j])
    if fixes.y[i] != fixes.y[j]:
        return bool(fixes.y[i] < fixes.y[j])
    a, b = fixes.low[i], fixes.low[j]
    while a < fixes.high[i] and b < fixes.high[j]:
        if fixes.fence[a] != fixes.fence[b]:
            return bool(fixes.fence[a] < fixes.fence[b])
        a += 1
        b += 1
    return bool(a == fixes.high[i] and b < fixes.high[j])


@compiled
def _emit(
    out: EventArrays, n: int, who: int, fence: int, kind: int, reason: int, time: int, since: int,
    from_x: float, from_y: float, x: float, y: float, label: int,
) -> int:  # fmt: skip
    out.object[n] = who
    out.fence[n] = fence
    out.kind[n] = kind
    out.reason[n] = reason
    out.time[n] = time
    out.since[n] = since
    out.from_x[n] = from_x
    out.from_y[n] = from_y
    out.x[n] = x
    out.y[n] = y
    out.label[n] = label
    return n + 1


@compiled
def walk(
    objects: ObjectArrays, fixes: Fixes, rules: EventRules
) -> tuple[EventArrays, ObjectArrays, LegArrays, Ignored]:
    """Take objects through their fixes; return the events, what is known of objects, and legs."""
    number, nan = len(objects.known), np.nan
    old_pairs, new_pairs = len(objects.fence), len(fixes.fence)
    # A fix in a fence is an enter, which one exit can follow, or a stay, with two events at most.
    most = old_pairs + 2 * new_pairs
    out = EventArrays(
        np.empty(most, np.int64), np.empty(most, np.int64),
        np.empty(most, np.uint8), np.empty(most, np.uint8),
        np.empty(most, np.int64), np.empty(most, np.int64),
        np.empty(most, np.float64), np.empty(most, np.float64),
        np.empty(most, np.float64), np.empty(most, np.float64),
        np.empty(most, np.int64),
    )  # fmt: skip
    after = ObjectArrays(
        np.zeros(number, np.bool_), objects.time.copy(), objects.x.copy(), objects.y.copy(),
        np.zeros(number + 1, np.int64),
        np.empty(old_pairs + new_pairs, np.int64), np.empty(old_pairs + new_pairs, np.int64),
        np.empty(old_pairs + new_pairs, np.int64), np.empty(old_pairs + new_pairs, np.uint8),
        np.empty(old_pairs + new_pairs, np.int64),
    )  # fmt: skip
    largest = 0
    for o in range(number):
        largest = max(largest, objects.starts[o + 1] - objects.starts[o])
    for i in range(len(fixes.time)):
        largest = max(largest, fixes.high[i] - fixes.low[i])
    # The fences that the object is in, and the place for those after the next fix.
    fence, since = np.empty((2, largest), np.int64), np.empty((2, largest), np.int64)
    until, dwelt = np.empty((2, largest), np.int64), np.empty((2, largest), np.uint8)
    label = np.empty((2, largest), np.int64)
    places = len(fixes.time) if rules.cross > 0 else 0
    legs = LegArrays(
        np.empty(places, np.int64), np.empty(places), np.empty(places), np.empty(places),
        np.empty(places), np.empty(places, np.int64),
    )  # fmt: skip
    horizon = rules.horizon
    n = late = repeated = kept = walked = long_legs = 0
    for o in range(number):
        now, size = 0, 0
        known, time, x, y = objects.known[o], objects.time[o], objects.x[o], objects.y[o]
        for j in range(objects.starts[o], objects.starts[o + 1]):
            at = np.searchsorted(rules.changed, objects.fence[j])
            if at < len(rules.changed) and rules.changed[at] == objects.fence[j]:
                reason = _REPLACED if rules.exists[at] else _REMOVED
                n = _emit(
                    out, n, o, objects.fence[j], _EXIT, reason, time, objects.since[j],
                    x, y, nan, nan, objects.label[j],
                )  # fmt: skip
                continue
            fence[now, size], since[now, size] = objects.fence[j], objects.since[j]
            until[now, size], dwelt[now, size] = objects.until[j], objects.dwelt[j]
            label[now, size] = objects.label[j]
            size += 1
        seen = known
        i = fixes.starts[o]
        while i < fixes.starts[o + 1]:
            t = fixes.time[i]
            chosen = i
            i += 1
            same = 0
            while i < fixes.starts[o + 1] and fixes.time[i] == t:
                same += 1
                if _comes_first(fixes, i, chosen):
                    chosen = i
                i += 1
            if t < horizon or (seen and t < time):
                late += 1 + same
                continue
            if seen and t == time:
                repeated += 1 + same
                continue
            repeated += same
            if known and t - time > rules.silent:
                for j in range(size):
                    n = _emit(
                        out, n, o, fence[now, j], _EXIT, _SILENT, time, since[now, j],
                        x, y, nan, nan, label[now, j],
                    )  # fmt: skip
                known, size = False, 0
            from_x, from_y = (x, y) if known else (nan, nan)
            to_x, to_y = fixes.x[chosen], fixes.y[chosen]
            low, high = fixes.low[chosen], fixes.high[chosen]
            if rules.cross > 0 and known and (x != to_x or y != to_y):
                if np.hypot(to_x - x, to_y - y) <= rules.cross:
                    legs.object[walked], legs.time[walked] = o, t
                    legs.from_x[walked], legs.from_y[walked] = x, y
                    legs.x[walked], legs.y[walked] = to_x, to_y
                    walked += 1
                else:
                    long_legs += 1
            # Exits by expiry have the time before: they come first.
            for expired in (True, False):
                k = low
                for j in range(size):
                    while k < high and fixes.fence[k] < fence[now, j]:
                        k += 1
                    stays = k < high and fixes.fence[k] == fence[now, j]
                    if stays or (until[now, j] <= t) != expired:
                        continue
                    if expired:
                        n = _emit(
                            out, n, o, fence[now, j], _EXIT, _EXPIRED, time, since[now, j],
                            x, y, nan, nan, label[now, j],
                        )  # fmt: skip
                    else:
                        n = _emit(
                            out, n, o, fence[now, j], _EXIT, _LEFT, t, since[now, j],
                            from_x, from_y, to_x, to_y, label[now, j],
                        )  # fmt: skip
            new, j = 1 - now, 0
            for k in range(low, high):
                one, m = fixes.fence[k], k - low
                while j < size and fence[now, j] < one:
                    j += 1
                fence[new, m], until[new, m] = one, fixes.until[k]
                since[new, m], dwelt[new, m] = t, 0
                label[new, m] = fixes.label[k]
                if j == size or fence[now, j] != one:
                    n = _emit(
                        out, n, o, one, _ENTER, _NONE, t, t,
                        from_x, from_y, to_x, to_y, fixes.label[k],
                    )  # fmt: skip
                    continue
                began = since[now, j]
                since[new, m], dwelt[new, m] = began, dwelt[now, j]
                if rules.dwell and not dwelt[now, j] and t - began >= rules.dwell:
                    dwelt[new, m] = 1
                    n = _emit(
                        out, n, o, one, _DWELL, _NONE, t, began,
                        from_x, from_y, to_x, to_y, fixes.label[k],
                    )  # fmt: skip
                if rules.inside:
                    n = _emit(
                        out, n, o, one, _INSIDE, _NONE, t, began,
                        from_x, from_y, to_x, to_y, fixes.label[k],
                    )  # fmt: skip
            now, size = new, high - low
            known, seen, time, x, y = True, True, t, to_x, to_y
        gone = known and time < horizon
        for j in range(size):
            if gone or until[now, j] <= rules.clock:
                reason = _SILENT if gone else _EXPIRED
                n = _emit(
                    out, n, o, fence[now, j], _EXIT, reason, time, since[now, j],
                    x, y, nan, nan, label[now, j],
                )  # fmt: skip
                continue
            after.fence[kept], after.since[kept] = fence[now, j], since[now, j]
            after.until[kept], after.dwelt[kept] = until[now, j], dwelt[now, j]
            after.label[kept] = label[now, j]
            kept += 1
        after.known[o] = known and not gone
        after.time[o], after.x[o], after.y[o] = time, x, y
        after.starts[o + 1] = kept
    events = EventArrays(
        out.object[:n], out.fence[:n], out.kind[:n], out.reason[:n], out.time[:n], out.since[:n],
        out.from_x[:n], out.from_y[:n], out.x[:n], out.y[:n], out.label[:n],
    )  # fmt: skip
    left = ObjectArrays(
        after.known, after.time, after.x, after.y, after.starts,
        after.fence[:kept], after.since[:kept], after.until[:kept], after.dwelt[:kept],
        after.label[:kept],
    )  # fmt: skip
    some = LegArrays(
        legs.object[:walked], legs.from_x[:walked], legs.from_y[:walked], legs.x[:walked],
        legs.y[:walked], legs.time[:walked],
    )  # fmt: skip
    return events, left, some, Ignored(late, repeated, long_legs)
