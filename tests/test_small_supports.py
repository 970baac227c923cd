"""Pairs of small supports, settled without pivots, against `solve` on each of them: the same bits, trees and pivots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit
from transport_blocks import GROUNDS, ROWS, distribution, ground, rows_of

from bisimetric.backends.cpu import kernels
from bisimetric.backends.cpu.kernels import memory, pairs, simplex, small_supports, spanning_tree
from bisimetric.backends.cpu.kernels.arguments import Block, Ground, Layout, Memory, Rows, read_only

GO_ON = np.zeros(1, np.uint8)
NOWHERE = np.empty((0, 0))
SEEDS = st.integers(0, 2**32 - 1)


def entered(part):
    """A part of kernels with a way in from Python."""
    return njit(lambda *given: part(*given))  # noqa: PLW0108 (this is what gives the way in)


scratch, gather, solve = entered(spanning_tree.scratch), entered(pairs.gather), entered(simplex.solve)
kept_entries, small_scratch = entered(memory.kept_entries), entered(small_supports.small_scratch)
settle_row = entered(small_supports.settle_row)


def some_rows(rng: np.random.Generator, n_rows: int, n: int, widest: int) -> np.ndarray:
    """Distributions on 1 … widest of n states; some are equal, and some have masses of 1e-17."""
    rows = np.array(
        [distribution(rng, str(rng.choice(ROWS)), n, int(rng.integers(1, widest + 1))) for _ in range(n_rows)]
    )
    rows[-1] = rows[0]
    tiny = rows[1] == rows[1].max()
    rows[1] = np.where(rows[1] > 0.0, np.where(tiny, 1.0, 1e-17), 0.0)
    return rows


def other_masses(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    rows = np.where(rows > 0.0, rng.random(rows.shape) + 1e-3, 0.0)
    return rows / rows.sum(axis=1, keepdims=True)


def csr(rows: np.ndarray) -> Rows:
    made = rows_of(rows)
    return Rows(read_only(made.indptr), read_only(made.indices.view(np.uint32)), read_only(made.probs))


def block_of(members: np.ndarray, *given: int) -> Block:
    return Block(read_only(members), *given)


def empty_memory(given: Rows, block: Block) -> Memory:
    sizes = np.diff(given.indptr)[block.members]
    base = np.empty((block.corner or len(sizes)) + 1, np.int64)
    kernels.kept_layout(sizes, Layout(block.first, block.corner, 0, 2), base)
    return Memory(np.zeros(base[-1], np.uint8), base)


def pair_by_pair(given: Rows, block: Block, cost: np.ndarray, top: float, memory: Memory):
    """(values, errors, pivots) from `solve` and the closed forms, pair by pair; `memory` is replaced."""
    indptr, indices, probs = given
    part, real, link = scratch(64)
    out, errors = (np.full((block.a1 - block.a0, len(block.members) - block.corner), np.nan) for _ in range(2))
    pivots, tol = 0, pairs.PRICING * top
    for a in range(block.a0, block.a1):
        start, lo = memory.base[a], indptr[block.members[a]]
        n = indptr[block.members[a] + 1] - lo
        for b in range(max(a + block.first, block.corner), len(block.members)):
            to = indptr[block.members[b]]
            m = indptr[block.members[b] + 1] - to
            if n == 1 or m == 1 or n + m == 4:
                lone = block_of(block.members[[a, b]], 0, 1, 1, 1)
                value, error, own = np.zeros((1, 1)), np.zeros((1, 1)), empty_memory(given, lone)
                kernels.exact_block(given, np.zeros(1), lone, Ground(cost, top, 1.0), own, GO_ON, value, error)
                memory.entries[start : start + len(own.entries)] = own.entries
                out[a - block.a0, b - block.corner] = value[0, 0]
                errors[a - block.a0, b - block.corner] = error[0, 0]
            else:
                gather(cost, indices, lo, n, to, m, part)
                real[spanning_tree.MASS, :n], real[spanning_tree.MASS, n : n + m] = (
                    probs[lo : lo + n],
                    probs[to : to + m],
                )
                value, more = solve(n, m, part, real, link, memory.entries, start, tol)
                pivots += more
                out[a - block.a0, b - block.corner] = value
                errors[a - block.a0, b - block.corner] = tol + 4.0 * pairs.EPS * (n + m) * top
            start += kept_entries(n, m, 0, 2)
    return out, errors, pivots


def check(given: Rows, block: Block, cost: np.ndarray, memory: Memory) -> None:
    """One block against its pairs; `memory` goes on to the next one."""
    top = float(cost.max())
    before = Memory(memory.entries.copy(), memory.base)
    expected, errors, pivots = pair_by_pair(given, block, cost, top, before)
    out, reported = np.full(expected.shape, np.nan), np.full(expected.shape, np.nan)
    done = kernels.exact_block(given, np.zeros(1), block, Ground(cost, top, 1.0), memory, GO_ON, out, reported)
    computed = ~np.isnan(expected)
    np.testing.assert_array_equal(out[computed], expected[computed])
    np.testing.assert_array_equal(reported[computed], errors[computed])
    assert done == (pivots, errors[computed].max(initial=0.0))
    np.testing.assert_array_equal(memory.entries, before.entries)


def check_kept(given: Rows, block: Block, cost: np.ndarray, memory: Memory, rng: np.random.Generator) -> None:
    """Costs of kept plans row by row, where strips are worth their while, and where they are not: the same bits."""
    shape = (block.a1 - block.a0, len(block.members) - block.corner)
    every, some, alone = (np.full(shape, np.nan) for _ in range(3))
    ground_now = Ground(cost, float(cost.max()), 1.0)
    kernels.kept_block(given, block, ground_now, memory, np.empty((0, 0), np.bool_), GO_ON, every)
    wanted = rng.random(shape) < 0.7
    kernels.kept_block(given, block, ground_now, memory, wanted, GO_ON, some)
    np.testing.assert_array_equal(some[wanted], every[wanted])
    padded = np.zeros((len(cost), cost.shape[1] + 40 * len(block.members)), cost.dtype)  # too many states for strips
    padded[:, : cost.shape[1]] = cost
    kernels.kept_block(given, block, ground_now._replace(cost=padded), memory, np.empty((0, 0), np.bool_), GO_ON, alone)
    np.testing.assert_array_equal(alone, every)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("two_models", [False, True])
@settings(max_examples=60)
@given(SEEDS, st.sampled_from([4, 6, 8, 10]), st.sampled_from(GROUNDS))
@example(0, 4, "zeros")
def test_blocks_are_their_pairs(two_models, first, dtype, seed, widest, kind):
    """Cold, with the same costs, with others, and with other masses on the same successors, in blocks of rows."""
    rng = np.random.default_rng(seed)
    n = widest + int(rng.integers(0, 4))
    rows = some_rows(rng, 7, n, widest)
    members, corner = np.arange(7), 3 if two_models else 0
    memory = empty_memory(csr(rows), block_of(members, 0, 1, first, corner))
    cost = ground(rng, kind, n).astype(dtype)
    for step in range(6):
        given = csr(rows)
        for a0, a1 in ((0, 2), (2, corner or 7)):
            check(given, block_of(members, a0, a1, first, corner), cost, memory)
            check_kept(given, block_of(members, a0, a1, first, corner), cost, memory, rng)
        if step == 1:
            cost = (cost + 0.1 * ground(rng, "uniform", n)).astype(dtype)
        elif step == 2:
            rows = other_masses(rng, rows)
        elif step == 3:
            cost = ground(rng, kind, n).astype(dtype)
        elif step == 4:
            cost = np.zeros_like(cost)


@pytest.mark.parametrize(
    "sizes", [(4, 4), (3, 4), (4, 3), (2, 4), (4, 2), (3, 3), (8, 8), (5, 8), (8, 3), (3, 8), (9, 4)]
)
def test_every_shape(sizes):
    """Each shape in a group of its own, so that its kernel meets no other; equal rows are at exactly 0."""
    rng = np.random.default_rng(sizes)
    n = sum(sizes)
    rows = np.array([distribution(rng, "simplex", n, size) for size in (*sizes, *sizes)])
    rows[2] = rows[0]
    memory = empty_memory(csr(rows), block_of(np.arange(4), 0, 1, 1, 0))
    for k in range(8):
        cost = (1.0 + 0.1 * k) * ground(rng, "line", n) + 0.1 * ground(rng, "uniform", n)
        check(csr(rows), block_of(np.arange(4), 0, 4, 1, 0), cost, memory)
        for _ in range(2):
            out = np.zeros((4, 4))
            given = Ground(cost, float(cost.max()), 1.0)
            block = block_of(np.arange(4), 0, 4, 1, 0)
            kernels.exact_block(csr(rows), np.zeros(1), block, given, memory, GO_ON, out, NOWHERE)
            assert out[0, 2] == 0.0


def test_kept_trees_are_settled_without_solving():
    """All pairs of supports of 2 … 8 states whose trees are still optimal, and none with a closed form."""
    rng = np.random.default_rng(1)
    rows = np.array([distribution(rng, "simplex", 12, 1 + k % 9) for k in range(27)])
    given, block = csr(rows), block_of(np.arange(27), 0, 27, 1, 0)
    memory, cost = empty_memory(given, block), ground(rng, "uniform", 12)
    costs = Ground(cost, float(cost.max()), 1.0)
    kernels.exact_block(given, np.zeros(1), block, costs, memory, GO_ON, np.zeros((27, 27)), NOWHERE)
    small = small_scratch(cost, 9)
    pending, sizes = np.empty((2, 27), np.int64), np.diff(given.indptr)
    for a in range(27):
        count, most = settle_row(given, block, a, costs, memory, small, pending, np.zeros((27, 27)))
        settled = np.setdiff1d(np.arange(a + 1, 27), pending[0, :count])
        expected = [
            b
            for b in range(a + 1, 27)
            if min(sizes[a], sizes[b]) > 1 and max(sizes[a], sizes[b]) <= 8 and sizes[a] + sizes[b] > 4
        ]
        assert settled.tolist() == expected
        assert most == max((sizes[b] for b in expected), default=0)
