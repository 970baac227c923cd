"""Runs in parts, side by side: each as if it were alone."""

from __future__ import annotations

from functools import partial

import pytest
from policy_runs import NOISY, chain, same

import bisimetric as bm
from bisimetric.policy.batch import Batch
from bisimetric.policy.solve import PolicyWork


class Counting:
    """Work of some parts, which are noted as they are done."""

    def __init__(self, n, seen, *, fail=False):
        self.n, self.seen, self.fail, self.stopped = n, seen, fail, False

    def go_on(self):
        self.seen.append(len(self.seen))
        return len(self.seen) >= self.n

    def interrupt(self):
        self.stopped = True

    def result(self):
        if self.fail:
            raise ArithmeticError("no")
        return "stopped" if self.stopped else self.n


def test_parts_go_on_in_turn_and_results_have_their_names():
    seen: list[list[int]] = [[], [], []]
    batch: Batch[int] = Batch(3, "cpu")
    for number, length in enumerate((1, 3, 2)):
        batch.add(f"run {number}", partial(Counting, length, seen[number], fail=number == 2))
    assert batch.full
    assert len(batch) == 3
    assert batch.go_on() == [("run 0", 1)]
    assert seen == [[0], [0], [0]]
    assert not batch.full
    [(name, error)] = batch.go_on()
    assert name == "run 2"
    assert isinstance(error, ArithmeticError)
    assert batch.go_on() == [("run 1", 3)]
    assert len(batch) == 0


def test_an_interrupt_ends_all_with_what_they_have():
    batch: Batch[str] = Batch(2, "cpu")
    batch.add("a", partial(Counting, 9, []))
    batch.add("b", partial(Counting, 9, []))
    assert batch.go_on() == []
    assert batch.go_on(interrupt=True) == [("a", "stopped"), ("b", "stopped")]


@pytest.mark.parametrize("side_by_side", [1, 2, 8])
def test_runs_of_a_batch_are_those_alone(side_by_side):
    mdp, other = chain(), chain(n_states=15, n_classes=3, seed=4)
    variants = [{"seed": 0}, {"seed": 1, "steps": 3}, {"mdp": other}, {"transport": bm.Exact(), "greedy_noise": None}]
    common = {"transport": bm.Sinkhorn(1.0, diagonal="zero"), "steps": 5, **NOISY}
    found = bm.solve_policies(mdp, variants, side_by_side=side_by_side, **common)
    assert len(found) == 4
    for changes, run in zip(variants, found, strict=True):
        arguments = {"mdp": mdp, **common, **changes}
        same(run, bm.solve_policy(arguments.pop("mdp"), **arguments))


def test_a_stop_ends_all_runs_with_what_they_have():
    def stop(step):
        if step.k == 2:
            raise KeyboardInterrupt

    runs = bm.solve_policies(
        chain(),
        [{"seed": 0}, {"seed": 1, "on_progress": stop}, {"seed": 2}, {"seed": 3}],
        side_by_side=3,
        steps=9,
        **NOISY,
    )
    assert [run.status for run in runs] == [bm.Status.INTERRUPTED] * 3  # the last had not begun
    lengths = [len(run.history) for run in runs]
    assert lengths[1] == 3
    assert all(2 <= length < 9 for length in lengths)  # on a GPU they do not go in step
    for run in runs:
        assert run.certificate.error >= run.error - 1e-12


def test_a_stop_while_a_run_ends_loses_nothing(monkeypatch):
    original, calls = PolicyWork._result, []

    def interrupted(work):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(work)

    monkeypatch.setattr(PolicyWork, "_result", interrupted)
    runs = bm.solve_policies(chain(), [{"steps": 2}, {"steps": 6}, {"steps": 6}], side_by_side=2, **NOISY)
    assert [run.status for run in runs] == [bm.Status.INTERRUPTED] * 2
    assert len(runs[0].history) == 2
    assert len(runs[1].history) < 6


def test_works_that_fail_at_once_leave_their_stream():
    def broken():
        raise ArithmeticError("at once")

    batch: Batch[int] = Batch(1, "cpu")
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            batch.add("x", broken)
        assert not batch.full
    assert len(batch._idle) == 1


def test_what_cannot_be_run_is_refused():
    with pytest.raises(ValueError, match="steps must be at least 1"):
        bm.solve_policies(chain(), [{}, {"steps": 0}])
    with pytest.raises(TypeError, match="stepz"):
        bm.solve_policies(chain(), [{"stepz": 3}])
    with pytest.raises(ValueError, match="side_by_side must be at least 1"):
        bm.solve_policies(chain(), [{}], side_by_side=0)
    with pytest.raises(bm.ModelError, match="policy needs one probability per choice"):
        bm.solve_policies(chain(), [{"policy": [1.0]}])
    assert bm.solve_policies(chain(), []) == []
