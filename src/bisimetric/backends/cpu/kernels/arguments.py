"""What kernels are given, in bundles of what belongs together.

Numba takes these tuples apart when a kernel is called, in about half a microsecond each. Inside of kernels it counts
references to every array of a tuple that is handed on, so what is called for each pair of small supports is given plain
arrays, and kernels take their tuples apart at their beginning.
"""

from typing import NamedTuple

from ....kinds import Array


def read_only(array: Array) -> Array:
    """The array, for kernels that do not write to it. Numba compiles anew for one that could be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class Rows(NamedTuple):
    """Distributions over states, as CSR rows that sum to 1 and have no zeros."""

    indptr: Array  # [N + 1]
    indices: Array  # [nnz]
    probs: Array  # [nnz]


class Block(NamedTuple):
    """Pairs (a, b) of members of a group of rows: a0 ≤ a < a1, b ≥ a + first, and b ≥ corner.

    Results of a pair are at [a − a0, b − corner]. In a group of one model's rows the corner is 0; where rows of two
    models are compared, those of the first come first, a < corner, and pairs are a rectangle.
    """

    members: Array  # [M] rows
    a0: int
    a1: int
    first: int
    corner: int


class Memory(NamedTuple):
    """What is kept of each pair of a group: that of a row a begins at base[a]. An empty base: nothing is kept."""

    entries: Array  # [base[-1]]
    base: Array  # [M + 1] or [0]


class Ground(NamedTuple):
    """The ground costs of a sweep."""

    cost: Array  # d^p [S, S]
    top: float  # its largest entry
    inv_p: float  # 1/p


class Scalings(NamedTuple):
    """How entropic plans are found: by scalings of one kernel for all pairs, or by logarithms where it underflows."""

    kernel: Array  # exp(−C/λ) [S, S]; [1, 1] where in_logs
    reg: float  # λ
    in_logs: bool
    as_value: bool  # whether λ KL is part of the answer


class Limits(NamedTuple):
    """Where scalings stop: marginals within a tolerance that follows from the accuracy of an entry."""

    accuracy: float
    tightest: float  # tolerance of a marginal, as its L1 error
    loosest: float
    iterations: int
    eps: float  # unit round-off of the kernel


class Stop(NamedTuple):
    """Where the scalings of one pair stop: the L1 error of its columns, and how large scalings may become."""

    tol: float
    iterations: int
    far: float


class Ball(NamedTuple):
    """Couplings with KL(ω ‖ a⊗b) ≤ radius, and how exactly the least cost over them is found."""

    radius: float
    entropies: Array  # of the rows [N]
    tol: float  # of a marginal, as its L1 error
    iterations: int
    accuracy: float  # of an entry


class Potentials(NamedTuple):
    """What is kept of entropic plans: y where `scalings`, else log y; where `own_reg`, each pair's log λ before it."""

    reg: float  # λ of all pairs, unless own_reg
    own_reg: bool
    scalings: bool
    tol: float  # of a marginal, as its L1 error
    iterations: int


class Pair(NamedTuple):
    """One problem of transport: costs between two supports and the masses on them."""

    cost: Array  # [n · m], by rows
    a: Array  # [n]
    b: Array  # [m]


class Work(NamedTuple):
    """The work space of one thread for entropic plans in the log domain, for supports of at most w states."""

    vec: Array  # vectors of a scaling, then log x and log y [8, w]
    squares: Array  # the plan, the same by columns, the matrix of a Newton step [3, w · w]
    real: Array  # of the network simplex, see `spanning_tree` [6, 2w]
    link: Array  # [7, 2w]


class Products(NamedTuple):
    """What dense rows are multiplied with, and where scalings stop."""

    kernel: Array  # K = exp(−C/λ) [S, S]
    weighted: Array  # K∘C [S, S]; not read where as_value
    reg: float  # λ
    as_value: bool
    tol: float  # of a marginal, as its L1 error
    iterations: int


class Weights(NamedTuple):
    """Of rewards and of transitions in a distance: c_R |Δr| + c_T W."""

    c_R: float
    c_T: float


class Sides(NamedTuple):
    """The choices of states s and of states t, as numbers of rows; row y of the second side is at y − corner."""

    pointers: Array  # [S + 1]
    columns: Array  # [T + 1]
    corner: int


class Stored(NamedTuple):
    """What is kept of the pairs of a group, and the sizes of its supports, which say how much it is."""

    entries: Array  # [base[-1]]
    base: Array  # [M + 1]
    sizes: Array  # [M]


class Layout(NamedTuple):
    """A pair (a, b) of a block without a closed form keeps shared·(n_a − 1) + per_pair + (shared or 1)·n_b entries.

    Two successors a side keep one entry where shared > 0, and none elsewhere.
    """

    first: int
    corner: int
    per_pair: int
    shared: int


class ChainOfRewards(NamedTuple):
    """A Markov chain with rewards and a discount."""

    rows: Rows
    rewards: Array  # [S]
    gamma: float


class Classes(NamedTuple):
    """The class of each state, and its weight in it."""

    class_of: Array  # [S]
    shares: Array  # [S]


class Choices(NamedTuple):
    """The choices of each state s, ptr[s] … ptr[s + 1] − 1, and the state of each choice."""

    ptr: Array  # [S + 1]
    state_of: Array  # [N]


class Into(NamedTuple):
    """The choices that may lead to each state t: choices[ptr[t]:ptr[t + 1]]."""

    ptr: Array  # [S + 1]
    choices: Array  # [nnz]


class Refined(NamedTuple):
    """A partition of n elements that is being refined, and what is known of its elements."""

    elements: Array  # block by block [n]
    place: Array  # of each element in them [n]
    block_of: Array  # [n]
    bounds: Array  # begin and end of each block in them [2, n]
    hashes: Array  # two of each element's description [2, n]
    touched: Array  # elements to look at again [n]
    moved: Array  # elements that got a new block [n]
    seen: Array  # whether an element is listed in `touched` [n]
