"""Who a rollout failed by."""

from __future__ import annotations

from ratchet.records import Reason, Trajectory
from ratchet.task_records import FailureKind


def failure_of(trajectory: Trajectory) -> tuple[FailureKind | None, str]:
    """Who a trajectory failed by, and how; None where it was submitted as done. It is graded all the same: what counts
    is what was done."""
    reason = last_reason(trajectory)
    if trajectory.end != "submitted":
        return FailureKind.LIMITS, trajectory.end
    last = trajectory.steps[-1].action
    if last.ok:
        return None, ""
    kind = FailureKind.LIMITS if reason is Reason.BUDGET_SPENT else FailureKind.POLICY
    return kind, f"{reason}: {last.detail}" if reason else last.detail


def last_reason(trajectory: Trajectory) -> Reason | None:
    """Why the policy says that it did not solve the task, if it says so."""
    return trajectory.steps[-1].action.reason if trajectory.steps else None
