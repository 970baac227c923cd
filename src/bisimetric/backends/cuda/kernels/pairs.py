"""Blocks of pairs on the device: which kernel runs for which supports, and its work space."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....kinds import Array, Ints, Precision
from ....model import Distributions
from ...errors import DeviceError
from .arguments import Ball, Ground, Limits, PairBlock, Potentials, Scalings
from .device import cache_bytes, cupy, free_bytes, lanes, launch, over, over_rows, parts, processors, put
from .fields import Tally

_BITS = 48  # masses of the exact solver add up to 2 to this power
_SMALL_BITS = {"float32": 25, "float64": 57}  # and those of the kernels for small supports: MassOf in exact.cu
_FROZEN = 2  # FROZEN of common.cuh
_WORK_SHARE = 0.25  # of the free memory, for work spaces of warps
_STRIP_SHARE = 3.2  # strips at once, in second-level caches: pairs go through them row by row, so that some are in use
_SHARED_BYTES = 128 << 10
_FAST_LIMIT = 300  # iterations before a pair is left to the kernel that knows Newton steps
SMALL = (4, 8)  # widths of the kernels with a few lanes a pair
WIDE = (12, 20, 32)  # and of the exact solver's with several
WARP = {12: (5, 4), 20: (5, 3), 32: (4, 2)}  # of Sinkhorn's with a warp: blocks on a multiprocessor, float32 and 64
_GROUP = {12: 16, 20: 32, 32: 32}  # lanes of these that share a pair


class Rows:
    """The rows of one family on the device, ready for the kernels."""

    def __init__(self, rows: Distributions, groups: tuple[Ints, ...], dtype: Precision) -> None:
        xp = cupy()
        indptr, indices, n_states = rows.indptr, rows.indices.view(np.uint32), rows.pairs_shape[1]
        self.dtype, self.n_states = dtype, n_states  # of the second model, where there are two
        self.sizes = rows.sizes
        self.host_groups, self.groups = groups, [xp.asarray(np.ascontiguousarray(g, np.int64)) for g in groups]
        self.widest = [int(self.sizes[g].max()) for g in groups]
        self.warp_widths = [0 if self.small_width(g) else warp_width(self.sizes[m]) for g, m in enumerate(groups)]
        self.indptr, self.indices = xp.asarray(indptr), xp.asarray(np.ascontiguousarray(indices, np.uint32))
        self._host_indptr = indptr
        self._arrays: dict[str, Array] = {}
        self._slots: list[tuple[str, int, int]] = []  # kinds, groups and widths of slots that depend on probabilities
        self._slot_places: dict[tuple[int, int], tuple[Array, Array]] = {}  # entries of slots, and which are used
        self._rooms: dict[str, Array] = {}
        self.extents = [xp.asarray(np.stack([indptr[g], self.sizes[g]], axis=1).astype(np.uint32)) for g in groups]
        self.set_probs(rows.probs)
        self.work: Array | None = None
        self.work_shape = (0, 0)
        self.list: Array | None = None

    def set_probs(self, probs: Array) -> None:
        """Take other probabilities on the same successors."""
        if "probs" in self._arrays:
            put(self._arrays["probs"], probs)
        else:
            self._arrays["probs"] = cupy().array(probs)
        if "mass" in self._arrays:
            self._placed("mass", self._integer_masses(_BITS))
        for kind, group, width in self._slots:
            self._placed(f"{kind} {group} {width}", self._slot_values(kind, group, width))

    @property
    def probs(self) -> Array:
        return self._arrays["probs"]

    def _placed(self, key: str, values: Array) -> Array:
        """An array of the device that stays where it is when it gets other values of the same shape."""
        if key in self._arrays:
            self._arrays[key][...] = values
        else:
            self._arrays[key] = values
        return self._arrays[key]

    def _integer_masses(self, bits: int) -> Array:
        """Probabilities as integers that add up to 2^bits in each row; what rounding leaves goes to the largest."""
        n = len(self.sizes)
        mass: Array = cupy().empty(self.probs.shape, np.int64)
        launch("fields.cu", "integer_masses", self.dtype, *over(n), (self.indptr, self.probs, n, 1 << bits, mass))
        return mass

    def room(self, key: str, size: int) -> Array:
        """Room for `size` numbers that is used again and again."""
        if key not in self._rooms or self._rooms[key].size < size:
            self._rooms[key] = cupy().empty(size, self.dtype)
        return self._rooms[key][:size]

    @property
    def mass(self) -> Array:
        """Integer masses of the entries; each row adds up to 2^48 exactly."""
        if "mass" not in self._arrays:
            self._placed("mass", self._integer_masses(_BITS))
        return self._arrays["mass"]

    def small_width(self, group: int) -> int:
        """The width of the kernels with a few lanes a pair, where they serve the group; else 0."""
        return next((width for width in SMALL if self.widest[group] <= width), 0)

    def exact_width(self, group: int) -> int:
        """The width of the exact solver's kernels with some lanes a pair, where they serve the group; else 0."""
        return next((width for width in (*SMALL, *WIDE) if self.widest[group] <= width), 0)

    def slots(self, kind: str, group: int, width: int) -> Array:
        """The "successors", "probs" or "masses" of a group's rows [width, members], transposed and padded."""
        key = f"{kind} {group} {width}"
        if key not in self._arrays:
            self._placed(key, self._slot_values(kind, group, width))
            if kind != "successors":
                self._slots.append((kind, group, width))
        return self._arrays[key]

    def _slot_values(self, kind: str, group: int, width: int) -> Array:
        at, inside = self._places_of_slots(group, width)
        if kind == "successors":
            successors: Array = self.indices[at]
            return successors
        if kind == "probs":
            return (self.probs[at] * inside).astype(self.dtype)
        bits, bytes_each = (_SMALL_BITS[self.dtype.name], self.dtype.itemsize) if width in SMALL else (_BITS, 8)
        masses: Array = (self._integer_masses(bits)[at] * inside).astype(f"i{bytes_each}")
        return masses

    def _places_of_slots(self, group: int, width: int) -> tuple[Array, Array]:
        """The entry of each slot, and whether there is one."""
        if (group, width) not in self._slot_places:
            members, slots = self.host_groups[group], np.arange(width)[:, None]
            inside = slots < self.sizes[members]
            at = self._host_indptr[members] + np.where(inside, slots, 0)
            self._slot_places[group, width] = cupy().asarray(at), cupy().asarray(inside)
        return self._slot_places[group, width]

    def group_sizes(self, group: int) -> Array:
        """How many successors each row of a group has."""
        key = f"sizes {group}"
        if key not in self._arrays:
            self._placed(key, cupy().asarray(self.sizes[self.host_groups[group]].astype(np.int32)))
        return self._arrays[key]

    def strips(self, tally: Tally, block: PairBlock, width: int, *matrices: Array) -> Array:
        """Costs from the successors of rows a0 … a1 − 1 to all states, side by side, of one or two matrices."""
        rows, n_members = block.a1 - block.a0, len(self.groups[block.group])
        strips = self.room("strips", len(matrices) * rows * self.n_states * width)
        grid, threads = over_rows(len(matrices) * rows, self.n_states)
        successors, sizes = self.slots("successors", block.group, width), (n_members, block.a0, rows, self.n_states)
        arguments = (tally.array, successors, *sizes, matrices[0], matrices[-1], strips)
        shared = threads // lanes() * width * (lanes() + 1) * self.dtype.itemsize
        launch("fields.cu", f"make_strips_{width}", self.dtype, grid, threads, arguments, shared)
        return strips.reshape(len(matrices), -1)

    def reach(self, block: PairBlock) -> tuple[int, int, int]:
        """What a Reach of common.cuh is made of."""
        return len(self.groups[block.group]), block.first, block.corner

    def width(self, block: PairBlock) -> int:
        """Columns of a block."""
        return len(self.groups[block.group]) - block.corner

    def arguments(self, tally: Tally, block: PairBlock) -> tuple[object, ...]:
        """PAIR_ARGUMENTS of the kernels."""
        matrix, members = (self.indptr, self.indices, self.probs), self.groups[block.group]
        return (tally.array, *matrix, members, *self.reach(block), block.a0, block.a1 - block.a0, self.n_states)

    def work_space(self, per_warp: int, pairs: int, shared: bool = True) -> tuple[int, Array, int]:
        """(blocks, work space, bytes of shared memory) for `per_warp` numbers a warp and at most `pairs` pairs.

        The work space is in shared memory where that is not 0.
        """
        warps = 4  # of a block
        wanted = max(1, min(-(-pairs // warps), 8 * processors()))
        if shared and 8 * per_warp * warps <= _SHARED_BYTES:
            return wanted, self.groups[0], 8 * per_warp * warps
        if self.work is None or self.work_shape[0] < per_warp or self.work_shape[1] < wanted:
            self.work = None
            fits = int(_WORK_SHARE * free_bytes() / (8 * per_warp * warps))
            if fits < 1:
                raise DeviceError(
                    f"a pair of supports needs {8e-9 * per_warp * warps:.3g} GB of work space, and "
                    f"{1e-9 * free_bytes():.3g} GB of device memory are free. Use the CPU."
                )
            self.work_shape = (per_warp, wanted)
            self.work = cupy().empty(per_warp * warps * min(wanted, fits), np.float64)
        return min(wanted, self.work.size // (per_warp * warps)), self.work, 0

    def in_use(self) -> tuple[object, ...]:
        """Arrays that launches refer to and that may be replaced by others."""
        return self.work, self.list, *self._arrays.values(), *self._rooms.values()

    def release(self) -> None:
        """Free what only sweeps need."""
        self.work = self.list = None
        self._rooms.clear()

    def list_pairs(self, places: Array) -> None:
        """List the pairs at these places of a block."""
        self.left_over(len(places))[: len(places)] = places

    def wants_gibbs(self) -> bool:
        """Whether Sinkhorn's kernels read exp(−cost/λ): an exponential of a float takes less time than to read it."""
        return any(self.warp_widths) and self.dtype == np.float64

    def sinkhorn_width(self, group: int) -> int:
        """Numbers that Sinkhorn's kernels for the group read side by side, 0 for the one that serves all supports."""
        return self.small_width(group) or self.warp_widths[group] * (2 if self.wants_gibbs() else 1)

    def rows_at_once(self, widths: Iterable[int]) -> int:
        """Rows whose strips of costs are made at once, for strips of these widths."""
        width = max(widths)
        rows = int(_STRIP_SHARE * cache_bytes()) // (self.n_states * width * self.dtype.itemsize) if width else 1 << 20
        return max(1, rows - rows % 8 if rows > 8 else rows)

    def kept_numbers(self, group: int) -> int:
        """Numbers that Sinkhorn keeps for a pair of the group."""
        return self.small_width(group) or self.widest[group]

    def tree_bytes(self, group: int) -> int:
        """Bytes that the exact solver keeps for a pair of the group."""
        width = self.exact_width(group)
        return {4: 4, 8: 16}.get(width, 2 * width) or 4 * self.widest[group]

    def left_over(self, pairs: int) -> Array:
        """Room to list `pairs` pairs."""
        if self.list is None or self.list.size < pairs:
            self.list = cupy().empty(pairs, np.uint32)
        return self.list


def warp_width(sizes: Ints) -> int:
    """The width of the kernel with one warp a pair that serves most rows of these sizes, 0 for none."""
    usual = float(np.quantile(sizes, 0.95, method="higher"))
    return next((width for width in WARP if usual <= width and lanes() > 1), 0)


def work_numbers(widest: int) -> int:
    """WORK_NUMBERS of scaling.cuh."""
    return 3 * widest * (widest + 1) + 24 * widest


def group_bytes(width: int, real: int) -> int:
    """Shared memory of a pair in `sinkhorn_warp`: GroupSpace of sinkhorn.cu."""
    numbers = width * width + 2 * _GROUP[width] + width + 4 + width * (width + 1)
    return real * (numbers + ((48 - numbers) % 32 or 32))


def pair_bytes(width: int, real: int) -> int:
    """Shared memory of a pair: SmallTree::BYTES of exact.cu, or LaneTree::BYTES of exact_wide.cu."""
    if width in SMALL:
        return real * (width * width + 8) + (8 + real) * (2 * width + 4) + 6 * width + 4
    stride = width if width % 32 else width + 16 // real
    arcs = 2 * width + {12: 4, 20: 0, 32: 2}[width]
    return real * width * stride + 8 * (2 * width + 2) + arcs * (16 if width > 16 else 12) + 4 * width


def exact_block(
    tally: Tally,
    rows: Rows,
    block: PairBlock,
    ground: Ground,
    share: float,
    kept: Array,
    out: Array,
    frozen: bool = False,
) -> None:
    """out[a − a0, b] = W_p between members a and b; kept is bytes [pairs, …], share is `budget.pricing_share`.

    Where frozen, the cost of the plan of each kept tree instead.
    """
    group, a0, a1, *_ = block
    widest, columns, reach = rows.widest[group], rows.width(block), rows.reach(block)
    keep, width = 0 if not len(kept) else _FROZEN if frozen else 1, rows.exact_width(group)
    if width:
        (strips,) = rows.strips(tally, block, width, ground.cost)
        slots, mass = (rows.slots(kind, group, width) for kind in ("successors", "masses"))
        sizes = rows.group_sizes(group)
        at_once = 4 * lanes() // parts("exact", width, rows.dtype)  # pairs of a block
        grid, shared = (-(-columns // at_once), a1 - a0), at_once * pair_bytes(width, rows.dtype.itemsize)
        settings = (ground.inv_p, share, keep, kept, out)
        small = (tally.array, slots, mass, sizes, *reach, a0, rows.n_states, strips)
        if width in SMALL and keep == _FROZEN:
            threads = 4 * lanes()
            grid, shared = (-(-columns // threads), a1 - a0), threads * width * (2 * rows.dtype.itemsize + 4)
            launch(
                "exact.cu", f"kept_small_{width}", rows.dtype, grid, threads, (*small, ground.inv_p, kept, out), shared
            )
        elif width in SMALL:
            launch("exact.cu", f"exact_small_{width}", rows.dtype, grid, 4 * lanes(), (*small, *settings), shared)
        else:
            arguments = (*rows.arguments(tally, block), slots, mass, sizes, strips, *settings)
            launch("exact_wide.cu", f"exact_wide_{width}", rows.dtype, grid, 4 * lanes(), arguments, shared)
        return
    blocks, work, shared = rows.work_space(widest * (widest + 1) + 8 * widest, (a1 - a0) * columns)
    given = (*rows.arguments(tally, block), rows.mass, ground.cost, ground.inv_p, share, widest, work, shared > 0)
    launch("exact.cu", "exact_pairs", rows.dtype, blocks, 4 * lanes(), (*given, keep, kept, out), shared)


def _entropic(scalings: Scalings, ground: Ground, limits: Limits) -> tuple[float, ...]:
    """Settings that all kernels of Sinkhorn take."""
    return scalings.reg, scalings.as_value, ground.inv_p, limits.accuracy, limits.tightest, limits.loosest


def sinkhorn_block(
    tally: Tally,
    rows: Rows,
    block: PairBlock,
    ground: Ground,
    scalings: Scalings,
    limits: Limits,
    kept: Array,
    out: Array,
) -> None:
    """out[a − a0, b] = the Sinkhorn distance; kept [pairs, width] holds log y.

    Pairs that the kernels for small supports do not finish soon are listed, and left to the one for all.
    """
    group, a0, a1, *_ = block
    columns = rows.width(block)
    pairs, keep = (a1 - a0) * columns, len(kept) > 0
    settings, waiting = _entropic(scalings, ground, limits), rows.left_over(pairs)
    most, small, width = min(limits.iterations, _FAST_LIMIT), rows.small_width(group), rows.warp_widths[group]
    if small:
        (strips,) = rows.strips(tally, block, small, ground.cost)
        slots, probs = (rows.slots(kind, group, small) for kind in ("successors", "probs"))
        at_once = 4 * lanes() // parts("sinkhorn", small, rows.dtype)  # pairs of a block
        shared = at_once * small * small * rows.dtype.itemsize
        grid, places = (-(-columns // at_once), a1 - a0), (*rows.reach(block), a0, rows.n_states)
        arguments = (tally.array, slots, probs, *places, strips, *settings, most, keep, kept, waiting, out)
        launch("sinkhorn.cu", f"sinkhorn_small_{small}", rows.dtype, grid, 4 * lanes(), arguments, shared)
    elif width:
        at_once = 4 * lanes() // _GROUP[width]  # pairs of a block
        blocks = max(1, min(-(-pairs // at_once), WARP[width][rows.dtype == np.float64] * processors()))
        batch = min(max(pairs // (32 * blocks * at_once), 1), 8)  # pairs that are taken at a time
        matrices = (ground.cost,) if scalings.gibbs is None else (ground.cost, scalings.gibbs)
        strips = rows.strips(tally, block, width, *matrices)
        costs = (rows.extents[group], ground.cost, strips[0], strips[-1])
        safe, stride = -1.0 if scalings.gibbs is None else scalings.safe, kept.shape[1] if keep else 0
        given = (*rows.arguments(tally, block), *costs, safe, *settings, most, batch, keep, stride, kept, waiting, out)
        shared = at_once * group_bytes(width, rows.dtype.itemsize)
        launch("sinkhorn.cu", f"sinkhorn_warp_{width}", rows.dtype, blocks, 4 * lanes(), given, shared)
    if small or width:
        pairs = min(pairs, (4 if small else 12) * processors())
    _sinkhorn_any(tally, rows, block, (ground.cost, settings, limits.iterations), kept, out, pairs, small + width > 0)


def sinkhorn_listed(
    tally: Tally,
    rows: Rows,
    block: PairBlock,
    ground: Ground,
    scalings: Scalings,
    limits: Limits,
    kept: Array,
    out: Array,
) -> None:
    """The same for the pairs that `rows` lists, by the kernel for all supports."""
    pairs = min((block.a1 - block.a0) * rows.width(block), 12 * processors())
    settings = _entropic(scalings, ground, limits)
    _sinkhorn_any(tally, rows, block, (ground.cost, settings, limits.iterations), kept, out, pairs, True)


def _sinkhorn_any(
    tally: Tally,
    rows: Rows,
    block: PairBlock,
    how: tuple[Array, tuple[object, ...], int],
    kept: Array,
    out: Array,
    pairs: int,
    listed: bool,
) -> None:
    """The kernel that serves all supports, for all pairs of a block or for those that are listed."""
    cost, settings, iterations = how
    widest, keep = rows.widest[block.group], len(kept) > 0
    blocks, work, shared = rows.work_space(work_numbers(widest), pairs)
    room = (iterations, widest, work, shared > 0, keep, kept.shape[1] if keep else 0, kept)
    arguments = (*rows.arguments(tally, block), rows.mass, cost, *settings, *room, listed, rows.list, out)
    launch("sinkhorn.cu", "sinkhorn_any", rows.dtype, blocks, 4 * lanes(), arguments, shared)


def independent_block(tally: Tally, rows: Rows, block: PairBlock, ground: Ground, out: Array) -> None:
    """out[a − a0, b] = (Σ_ij a_i b_j C_ij)^(1/p)."""
    common = rows.arguments(tally, block)
    mean = rows.room("means", (block.a1 - block.a0) * rows.n_states)
    launch("fields.cu", "mean_costs", rows.dtype, *over(mean.size), (*common, ground.cost, mean))
    means = (*common, mean, ground.inv_p, out)
    launch("fields.cu", "independent_pairs", rows.dtype, *over(out.size), means)


def ball_block(tally: Tally, rows: Rows, block: PairBlock, ground: Ground, ball: Ball, kept: Array, out: Array) -> None:
    """The least ‖d‖_{p,ω} over couplings with KL(ω ‖ a⊗b) ≤ radius; pairs whose answer is exact are left alone."""
    blocks, room = _room_of(rows, block, kept)
    settings = (ball.radius, ball.entropies, ground.inv_p, ball.tol, ball.iterations, ball.accuracy)
    arguments = (*rows.arguments(tally, block), rows.mass, ground.cost, *settings, *room, out)
    launch("ball.cu", "ball_pairs", rows.dtype, blocks, 4 * lanes(), arguments)


def bounds_block(
    tally: Tally,
    rows: Rows,
    block: PairBlock,
    ground: Ground,
    source: Potentials,
    kept: Array,
    lower: Array,
    upper: Array,
) -> None:
    """lower ≤ W_p ≤ upper for b > a, from entropic potentials; kept is only read."""
    blocks, room = _room_of(rows, block, kept)
    settings = (source.reg, source.own_reg, ground.inv_p, source.tol, source.iterations)
    arguments = (*rows.arguments(tally, block), rows.mass, ground.cost, *settings, *room, lower, upper)
    launch("ball.cu", "bound_pairs", rows.dtype, blocks, 4 * lanes(), arguments)


def _room_of(rows: Rows, block: PairBlock, kept: Array) -> tuple[int, tuple[object, ...]]:
    """(blocks; widest support, work space, whether anything is kept, numbers kept of a pair, these), in doubles."""
    widest, pairs = rows.widest[block.group], (block.a1 - block.a0) * rows.width(block)
    blocks, work, _ = rows.work_space(work_numbers(widest), pairs, shared=False)
    keep = len(kept) > 0
    return blocks, (widest, work, keep, kept.shape[1] if keep else 0, kept)
