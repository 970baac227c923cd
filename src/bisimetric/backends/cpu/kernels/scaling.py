"""Entropic transport between two small distributions, by Sinkhorn scaling helped by Newton.

The plan of least ⟨ω, C⟩ + λ KL(ω ‖ a⊗b) is ω = diag(x) K diag(y) with K = exp(−C/λ). Scaling makes
the row sums exact (x = a / K y), looks at the column sums, and corrects y. It converges linearly, and
slowly where λ is small. So a part of the last change of y is added to each step (Polyak's heavy ball, with weights for
the rate of the first steps), and the rate is watched: where too many steps are foreseen, a Newton step on
log y is tried, with the matrix diag(q) − ωᵀ diag(1/a) ω (q: column sums), and is kept only where it
lowers the error.

Where max C/λ is so large that K would underflow, `solve_log` works with log y and a kernel
exp(log x_i + log y_j − C_ij/λ) that is made anew whenever the scalings leave a safe range.

What is left at the end is x = a / (K y) with exact rows, the column sums without y, Q = Kᵀ x, and their L1 error
e = ‖y∘Q − b‖₁. Values are taken from the potentials f = λ log(x/a) and g = −λ log Q, that is after one more
correction of the columns, y' = b/Q. Both are then soft transforms of the cost, whatever y was, and so vary by at most
max C. The plan of x and y' has exact columns, total mass 1, and rows that are off by at most e. As the dual is
concave, its value

    ⟨f, a⟩ + ⟨g, b⟩  is at most the true value, and at most e·max C below it:

the gap is at most ⟨a − rows, f* − f⟩ for the true f*, which varies by at most max C too, and a − rows adds up to 0.
What is kept for the next sweep is y'.
"""

import numpy as np

from . import simplex
from .arguments import Stop, Work
from .jit import part
from .spanning_tree import MASS, POT, scratch, unread_tree

X, Y, Q, STEP, OLD, NEXT, LOG_X, LOG_Y = 0, 1, 2, 3, 4, 5, 6, 7  # rows of the vectors of one problem
PLAN, TURNED, MATRIX = 0, 1, 2  # rows of the squares
_FIRST_LOOK, _LOOK = 8, 6  # iterations between looks at the rate
_PLAIN = 2  # steps without momentum, for their rate
_QUICK = 0.1  # plain steps that leave no more than this of the error need no momentum
_WATCH = 8  # steps with momentum that must lower the error
_NOT, _BY_SCALING, _BY_NEWTON, _BACK = 0, 1, 2, 3  # how y came about
LARGEST_ERROR = 2.0  # of a marginal in L1
_FEW = 100  # entries of a kernel up to which rows are added one by one
_STEP_CAP = 3.0  # a Newton step changes log y by no more than this
_FAR = 1e100  # scalings after which a kernel is made anew


@part
def vectors(widest, dtype_of):
    """Allocate the vectors, the transposed kernel and the Newton matrix for supports of at most `widest` states."""
    square = widest * widest
    return np.empty((6, widest), dtype_of.dtype), np.empty(square, dtype_of.dtype), np.empty(square)


@part
def workspace(widest):
    """(costs of a pair, work space for plans in the log domain) for supports of at most `widest` states."""
    part, real, link = scratch(widest)
    return part, Work(np.empty((8, widest)), np.empty((3, widest * widest)), real, link)


@part
def transpose(n, m, kernel, turned):
    """turned = the kernel by columns, for sums over columns that go on side by side."""
    for i in range(n):
        for j in range(m):
            turned[j * n + i] = kernel[i * m + j]


@part
def _few_sums(n, m, kernel, a, vec):
    """x = a / K y and Q = Kᵀ x of few entries, row by row."""
    for j in range(m):
        vec[Q, j] = 0
    for i in range(n):
        total = kernel[0] * 0
        for j in range(m):
            total += kernel[i * m + j] * vec[Y, j]
        x = a[i] / total
        vec[X, i] = x
        for j in range(m):
            vec[Q, j] += kernel[i * m + j] * x


@part
def _weighted_rows(n, m, rows, vec, weights, sums):
    """vec[sums, j] = Σ_i vec[weights, i] rows[i, j], four rows at a time; all j go on side by side."""
    for j in range(m):
        vec[sums, j] = 0
    by_four = n - n % 4
    for i in range(0, by_four, 4):
        w0, w1, w2, w3 = vec[weights, i], vec[weights, i + 1], vec[weights, i + 2], vec[weights, i + 3]
        r0, r1, r2, r3 = i * m, (i + 1) * m, (i + 2) * m, (i + 3) * m
        for j in range(m):
            t = vec[sums, j]
            vec[sums, j] = (((t + rows[r0 + j] * w0) + rows[r1 + j] * w1) + rows[r2 + j] * w2) + rows[r3 + j] * w3
    for i in range(by_four, n):
        w0, r0 = vec[weights, i], i * m
        for j in range(m):
            vec[sums, j] += rows[r0 + j] * w0


@part
def _exact_rows(n, a, vec):
    """x = a / K y, where vec[X] has K y."""
    for i in range(n):
        vec[X, i] = a[i] / vec[X, i]


@part
def _corrected(m, b, vec):
    """y' = b / Q; returns the L1 error of the columns."""
    error = 0.0
    for j in range(m):
        error += abs(vec[Q, j] * vec[Y, j] - b[j])
        vec[NEXT, j] = b[j] / vec[Q, j]
    return error


@part
def _newton(n, m, kernel, a, b, vec, matrix):
    """Move log y by a capped Newton step; False where the matrix is not positive."""
    k = m - 1  # the last entry is held: scalings are free up to one factor
    for j in range(k):
        for l in range(j + 1):
            matrix[j * k + l] = 0.0
    for i in range(n):
        x = float(vec[X, i])
        for j in range(k):
            left = x * kernel[i * m + j] * vec[Y, j] / a[i]
            if left > 1e-14:
                for l in range(j + 1):
                    matrix[j * k + l] -= left * x * kernel[i * m + l] * vec[Y, l]
    for j in range(k):
        q = float(vec[Q, j] * vec[Y, j])
        matrix[j * k + j] += q * (1.0 + 1e-12) + 1e-18
        vec[STEP, j] = b[j] - q
    for j in range(k):  # Cholesky, then the two triangular solves
        for l in range(j + 1):
            total = matrix[j * k + l]
            for h in range(l):
                total -= matrix[j * k + h] * matrix[l * k + h]
            if l < j:
                matrix[j * k + l] = total / matrix[l * k + l]
            elif total > 0.0:
                matrix[j * k + j] = np.sqrt(total)
            else:
                return False
    for j in range(k):
        total = float(vec[STEP, j])
        for h in range(j):
            total -= matrix[j * k + h] * vec[STEP, h]
        vec[STEP, j] = total / matrix[j * k + j]
    largest = 0.0
    for j in range(k - 1, -1, -1):
        total = float(vec[STEP, j])
        for h in range(j + 1, k):
            total -= matrix[h * k + j] * vec[STEP, h]
        vec[STEP, j] = total / matrix[j * k + j]
        largest = max(largest, abs(vec[STEP, j]))
    shrink = _STEP_CAP / largest if largest > _STEP_CAP else 1.0
    for j in range(k):
        vec[OLD, j] = vec[Y, j]
        vec[Y, j] *= np.exp(shrink * vec[STEP, j])
    return True


@part
def _momentum(rate):
    """(weight of a step, weight of the last change) for an error of which a plain step leaves at most √rate.

    The first steps lose the fast parts of an error, so the slow ones leave more than their rate says.
    """
    root = np.sqrt(1.0 - min(np.sqrt(rate), 0.99))
    return 4.0 / (1.0 + root) ** 2, ((1.0 - root) / (1.0 + root)) ** 2


@part
def _next_scalings(m, vec, step, carry):
    """Correct y by the column sums; the last y goes to vec[OLD]."""
    if carry == 0.0:
        for j in range(m):
            vec[OLD, j] = vec[Y, j]
            vec[Y, j] = vec[NEXT, j]
        return
    for j in range(m):
        y, plain = vec[Y, j], vec[NEXT, j]
        moved = y + step * (plain - y) + carry * (y - vec[OLD, j])
        vec[OLD, j] = y
        vec[Y, j] = moved if moved > 0.5 * y else plain  # y must stay positive


@part
def scale(kernel, a, b, vec, turned, matrix, stop):
    """Scale until the L1 error of the columns is at most stop.tol; returns (iterations, error).

    Starts from vec[Y]; leaves x, y, the column sums Q and y' with exact rows. Stops early, with the error it has, where
    a scaling would leave [1/far, far] or the limit is reached. `turned` and `matrix` are work space.
    """
    n, m = len(a), len(b)
    tol, limit, far = stop
    few = n * m <= _FEW
    if not few:
        transpose(n, m, kernel, turned)
    done, error, before, look = 0, np.inf, np.inf, _FIRST_LOOK
    step, carry, steps, mark = 1.0, 0.0, 0, np.inf
    moved = _NOT
    while True:
        last = error
        if few:  # the kernels called here call none: counting references to arrays takes longer than few sums
            _few_sums(n, m, kernel, a, vec)
        else:
            _weighted_rows(m, n, turned, vec, Y, X)
            _exact_rows(n, a, vec)
            _weighted_rows(n, m, kernel, vec, X, Q)
        error = _corrected(m, b, vec)
        if moved == _BY_SCALING:
            done, steps = done + 1, steps + 1
            if carry == 0.0 and steps == _PLAIN and _QUICK * last < error < last:
                step, carry = _momentum(error / last)
                steps, mark = 0, error
            elif steps == _WATCH:
                if not error < mark:
                    carry = 0.0
                steps, mark = 0, error
        elif moved == _BY_NEWTON:
            done += 1 + m // 2
            carry, steps = 0.0, 0
            if not error < last:
                for j in range(m - 1):
                    vec[Y, j] = vec[OLD, j]
                moved = _BACK
                continue
            if error < 0.5 * last:
                look, before = done, last  # Newton works: go on with it
            else:
                look, before = done + _LOOK, error
        elif moved == _BACK:
            look, before = done + _LOOK, error
        else:
            done, before, mark = 1, error, error
        if not error > tol or done >= limit:
            break
        if done >= look:
            # Iterations foreseen at the rate since the last look, against the cost of Newton.
            rate = np.log(max(before / error, 1.0 + 1e-9)) / _LOOK
            if np.log(error / tol) / rate > 2 * m and _newton(n, m, kernel, a, b, vec, matrix):
                moved = _BY_NEWTON
                continue
            look, before = done + _LOOK, error
        low, high = np.inf, 0.0
        for j in range(m):
            low, high = min(low, vec[NEXT, j]), max(high, vec[NEXT, j])
        if not (low * far > 1.0 and high < far):
            break
        _next_scalings(m, vec, step, carry)
        moved = _BY_SCALING
    return done, error


@part
def _log_rows(n, m, cost, reg, a, log_x, log_y):
    """Exact rows in the log domain: log x_i = log a_i − LSE_j(log y_j − C_ij/λ)."""
    for i in range(n):
        top = -np.inf
        for j in range(m):
            top = max(top, log_y[j] - cost[i * m + j] / reg)
        total = 0.0
        for j in range(m):
            total += np.exp(log_y[j] - cost[i * m + j] / reg - top)
        log_x[i] = np.log(a[i]) - top - np.log(total)


@part
def _log_columns(n, m, cost, reg, b, log_x, log_y):
    for j in range(m):
        top = -np.inf
        for i in range(n):
            top = max(top, log_x[i] - cost[i * m + j] / reg)
        total = 0.0
        for i in range(n):
            total += np.exp(log_x[i] - cost[i * m + j] / reg - top)
        log_y[j] = np.log(b[j]) - top - np.log(total)


@part
def set_masses(real, a, b):
    """Give the network simplex its masses."""
    for i in range(len(a)):
        real[MASS, i] = a[i]
    for j in range(len(b)):
        real[MASS, len(a) + j] = b[j]


@part
def exact_start(pair, reg, real, link, vec):
    """A start for small λ: log y from the potentials of the exact plan, which are λ log-close."""
    cost, a, b = pair
    n, m = len(a), len(b)
    set_masses(real, a, b)
    top = 0.0
    for k in range(n * m):
        top = max(top, cost[k])
    simplex.solve(n, m, cost, real, link, unread_tree(n, m), 0, 1e-12 * top)
    for j in range(m):
        vec[LOG_Y, j] = real[POT, n + j] / reg + np.log(b[j])


@part
def solve_log(pair, reg, work, tol, limit):
    """Solve for any λ > 0 from the start in log y; returns (iterations, error).

    Leaves log x, log y', and the plan (rows exact, columns within the error).
    """
    cost, a, b = pair
    vec, squares, _, _ = work
    log_x, log_y = vec[LOG_X], vec[LOG_Y]
    plan, turned, matrix = squares[PLAN], squares[TURNED], squares[MATRIX]
    n, m = len(a), len(b)
    done = 0
    error = np.inf
    while True:
        _log_rows(n, m, cost, reg, a, log_x, log_y)
        for i in range(n):
            for j in range(m):
                plan[i * m + j] = np.exp(log_x[i] + log_y[j] - cost[i * m + j] / reg)
        for j in range(m):
            vec[Y, j] = 1.0
        more, error = scale(plan, a, b, vec, turned, matrix, Stop(tol, limit - done, _FAR))
        done += more
        for i in range(n):
            log_x[i] += np.log(vec[X, i])
        if error <= tol or done >= limit:
            break
        _log_columns(n, m, cost, reg, b, log_x, log_y)  # out of range: one step in the log domain
    for i in range(n):
        for j in range(m):
            plan[i * m + j] *= vec[X, i] * vec[Y, j]
    if error <= tol:
        for j in range(m):
            log_y[j] += np.log(vec[NEXT, j])
        return done, error
    _log_columns(n, m, cost, reg, b, log_x, log_y)  # sums may have left the range
    return done, error if error < LARGEST_ERROR else LARGEST_ERROR
