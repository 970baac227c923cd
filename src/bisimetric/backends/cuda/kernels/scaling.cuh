// Entropic transport between two distributions of any size, by Sinkhorn scaling helped by Newton, in double precision.
//
// The plan of least ⟨ω, C⟩ + λ KL(ω ‖ a⊗b) is diag(x) K diag(y), K = exp(−C/λ). Work goes on in a kernel
// exp(log x_i + log y_j − C_ij/λ) that is made anew whenever the scalings leave a safe range, so any λ > 0 will do.
// Scaling makes the rows exact, looks at the columns and corrects y, with a part of its last change. Where the rate
// foresees too many steps, a Newton step on log y is tried and kept where it lowers the error.

struct Scaling {  // the work space of one pair
  int n, m, ld;  // rows of cost and kernel are ld apart: odd, so that lanes meet different banks
  const double* a; const double* b;  // masses
  double* cost; double* kernel; double* matrix;
  double* x; double* y; double* q; double* step; double* old; double* log_x; double* log_y;
  double* tree;
};

// Numbers in the work space of a pair with supports of at most w states.
#define WORK_NUMBERS(w) (3 * (i64)(w) * ((w) + 1) + 24 * (i64)(w))

DEVICE inline Scaling work_space(double* work, i64 w, int n, int m, const double* a, const double* b) {
  const i64 square = w * (w + 1);
  double* v = work + 3 * square;
  Scaling s = {n, m, m | 1, a, b, work, work + square, work + 2 * square,
               v, v + w, v + 2 * w, v + 3 * w, v + 4 * w, v + 5 * w, v + 6 * w, v + 8 * w};
  return s;
}

template <int L> DEVICE double half_steps(const Scaling& s) {
  for (int i = lane_of(L); i < s.n; i += L) {
    double total = 0.0;
    for (int j = 0; j < s.m; ++j) total += s.kernel[i * s.ld + j] * s.y[j];
    s.x[i] = s.a[i] / total;
  }
  sync<L>();
  double error = 0.0;
  for (int j = lane_of(L); j < s.m; j += L) {
    double total = 0.0;
    for (int i = 0; i < s.n; ++i) total += s.x[i] * s.kernel[i * s.ld + j];
    s.q[j] = total;
    error += fabs(total * s.y[j] - s.b[j]);
  }
  sync<L>();
  return sum<L>(error);
}

// A capped Newton step on log y with the matrix diag(q) − ωᵀ diag(1/a) ω; false where it is not positive.
template <int L> DEVICE bool newton(const Scaling& s) {
  const int n = s.n, ld = s.ld, k = s.m - 1, wide = k | 1, lane = lane_of(L);  // the last entry is held
  for (int j = 0; j < k; ++j)
    for (int l = lane; l <= j; l += L) {
      double total = 0.0;
      for (int i = 0; i < n; ++i) {
        const double x = s.x[i];
        total += x * s.kernel[i * ld + j] * (x * s.kernel[i * ld + l] / s.a[i]);
      }
      total *= -s.y[j] * s.y[l];
      if (l == j) {
        const double mass = s.q[j] * s.y[j];
        total += mass * (1.0 + 1e-12) + 1e-18;
        s.step[j] = s.b[j] - mass;
      }
      s.matrix[j * wide + l] = total;
    }
  sync<L>();
  for (int l = 0; l < k; ++l) {  // Cholesky, column by column
    double diagonal = s.matrix[l * wide + l];
    double part = 0.0;
    for (int h = lane; h < l; h += L) part += s.matrix[l * wide + h] * s.matrix[l * wide + h];
    diagonal -= sum<L>(part);
    if (!(diagonal > 0.0)) return false;
    diagonal = sqrt(diagonal);
    sync<L>();
    if (lane == 0) s.matrix[l * wide + l] = diagonal;
    for (int j = l + 1 + lane; j < k; j += L) {
      double total = s.matrix[j * wide + l];
      for (int h = 0; h < l; ++h) total -= s.matrix[j * wide + h] * s.matrix[l * wide + h];
      s.matrix[j * wide + l] = total / diagonal;
    }
    sync<L>();
  }
  for (int j = 0; j < k; ++j) {
    const double value = s.step[j] / s.matrix[j * wide + j];
    sync<L>();
    if (lane == 0) s.step[j] = value;
    for (int h = j + 1 + lane; h < k; h += L) s.step[h] -= s.matrix[h * wide + j] * value;
    sync<L>();
  }
  for (int j = k - 1; j >= 0; --j) {
    const double value = s.step[j] / s.matrix[j * wide + j];
    sync<L>();
    if (lane == 0) s.step[j] = value;
    for (int h = lane; h < j; h += L) s.step[h] -= s.matrix[j * wide + h] * value;
    sync<L>();
  }
  double longest = 0.0;
  for (int j = lane; j < k; j += L) longest = fmax(longest, fabs(s.step[j]));
  longest = largest<L>(longest);
  const double shrink = longest > 3.0 ? 3.0 / longest : 1.0;
  for (int j = lane; j < k; j += L) s.step[j] *= shrink;
  sync<L>();
  return true;
}

// Move log y by the step, or by half of it, a quarter …: short ones lower the error, as they take off that part of it.
// Stays where it was in the end if none does. Returns the number of tries.
template <int L> DEVICE int move(const Scaling& s, double& error) {
  const int k = s.m - 1;
  const double before = error;
  double part = 1.0;
  for (int j = lane_of(L); j < k; j += L) s.old[j] = s.y[j];
  for (int tries = 1; tries <= 6; ++tries, part *= 0.5) {
    for (int j = lane_of(L); j < k; j += L) s.y[j] = s.old[j] * exp(part * s.step[j]);
    sync<L>();
    error = half_steps<L>(s);
    if (error < before) return tries;
  }
  for (int j = lane_of(L); j < k; j += L) s.y[j] = s.old[j];
  sync<L>();
  error = half_steps<L>(s);
  return 7;
}

// How much of the last change of y goes into the next one (Polyak's heavy ball): nothing at first; then weights for an
// error of which a plain step leaves at most the root of the rate seen; nothing where that does not lower the error.
template <class T> struct Momentum {
  enum { PLAIN = 2, WATCH = 8 };  // steps without momentum, for their rate; steps with it that must lower the error
  T step, carry, mark;  // weights of a step and of the last change; the error at the last look
  int steps;  // since then
  DEVICE Momentum() : step(0), carry(0), mark(0), steps(0) {}
  DEVICE void stop() { carry = 0; steps = 0; }
  // The next y after `y`, before which there was `last`, where a plain step leads to `plain`; it stays positive.
  template <class R> DEVICE R next(R y, R last, R plain) const {
    if (!(carry > 0)) return plain;
    const R moved = y + (R)step * (plain - y) + (R)carry * (y - last);
    return moved > (R)0.5 * y ? moved : plain;
  }
  DEVICE void watch(T error, T last) {
    ++steps;
    if (!(carry > 0) && steps == PLAIN && (T)0.1 * last < error && error < last) {  // quicker ones need none
      const T left = sqrt(error / last), root = sqrt(1 - (left < (T)0.99 ? left : (T)0.99));
      step = 4 / ((1 + root) * (1 + root));
      carry = (1 - root) * (1 - root) / ((1 + root) * (1 + root));
      steps = 0;
      mark = error;
    } else if (steps == WATCH) {
      if (!(error < mark)) carry = 0;
      steps = 0;
      mark = error;
    }
  }
};

// Scale until the L1 error of the columns is at most tol, from s.y. Stops early where a scaling would leave
// [1/far, far] or the limit is reached. Rows are exact on return.
template <int L> DEVICE int scale(const Scaling& s, double tol, int limit, double far, double& error) {
  error = half_steps<L>(s);
  int done = 1, look = 8;
  double before = error;
  bool works = false;  // Newton: then it goes on
  Momentum<double> momentum;
  while (error > tol && done < limit) {
    if (done >= look) {
      const double rate = log(fmax(before / error, 1.0 + 1e-9)) / 6.0;
      if ((works || log(error / tol) / rate > s.m) && newton<L>(s)) {
        before = error;
        done += s.m / 2 + move<L>(s, error);
        momentum.stop();
        works = error < 0.5 * before;
        if (works) { look = done; continue; }
      }
      works = false;
      look = done + 6;
      before = error;
    }
    double low = INFINITE, high = 0.0;
    for (int j = lane_of(L); j < s.m; j += L) {
      const double y = s.b[j] / s.q[j];
      low = fmin(low, y);
      high = y > high || isnan(y) ? y : high;
    }
    low = smallest<L>(low);
    high = largest<L>(high);
    if (!(low * far > 1.0 && high < far)) break;
    for (int j = lane_of(L); j < s.m; j += L) {
      const double y = s.y[j];
      s.y[j] = momentum.next(y, s.old[j], s.b[j] / s.q[j]);
      s.old[j] = y;
    }
    sync<L>();
    const double last = error;
    error = half_steps<L>(s);
    momentum.watch(error, last);
    ++done;
  }
  return done;
}

// Exact rows in the log domain, and the kernel with the scalings in it.
template <int L> DEVICE void log_rows(const Scaling& s, double reg) {
  for (int i = lane_of(L); i < s.n; i += L) {
    double top = -INFINITE, total = 0.0;
    for (int j = 0; j < s.m; ++j) top = fmax(top, s.log_y[j] - s.cost[i * s.ld + j] / reg);
    for (int j = 0; j < s.m; ++j) total += exp(s.log_y[j] - s.cost[i * s.ld + j] / reg - top);
    s.log_x[i] = log(s.a[i]) - top - log(total);
  }
  sync<L>();
  for (int i = 0; i < s.n; ++i)
    for (int j = lane_of(L); j < s.m; j += L)
      s.kernel[i * s.ld + j] = exp(s.log_x[i] + s.log_y[j] - s.cost[i * s.ld + j] / reg);
  sync<L>();
}

template <int L> DEVICE void log_columns(const Scaling& s, double reg) {
  for (int j = lane_of(L); j < s.m; j += L) {
    double top = -INFINITE, total = 0.0;
    for (int i = 0; i < s.n; ++i) top = fmax(top, s.log_x[i] - s.cost[i * s.ld + j] / reg);
    for (int i = 0; i < s.n; ++i) total += exp(s.log_x[i] - s.cost[i * s.ld + j] / reg - top);
    s.log_y[j] = log(s.b[j]) - top - log(total);
  }
  sync<L>();
}

// Solve for any λ > 0 from the start in log_y; leaves log x, log y' and the plan in s.kernel. y' = b/(Kᵀx) is y after one
// more correction of the columns: both potentials are then soft transforms of the cost, whatever the start was (the
// module `scaling` of the CPU has the proof of what that gives).
template <int L> DEVICE int solve_log(const Scaling& s, double reg, double tol, int limit, double& error) {
  int done = 0;
  error = INFINITE;
  for (;;) {
    log_rows<L>(s, reg);
    for (int j = lane_of(L); j < s.m; j += L) s.y[j] = 1.0;
    sync<L>();
    done += scale<L>(s, tol, limit - done, 1e100, error);
    for (int i = lane_of(L); i < s.n; i += L) s.log_x[i] += log(s.x[i]);
    sync<L>();
    if (error <= tol || done >= limit) break;
    log_columns<L>(s, reg);  // out of range: one step in the log domain
  }
  for (int i = 0; i < s.n; ++i)
    for (int j = lane_of(L); j < s.m; j += L) s.kernel[i * s.ld + j] *= s.x[i] * s.y[j];
  if (error <= tol) {
    for (int j = lane_of(L); j < s.m; j += L) s.log_y[j] += log(s.b[j] / s.q[j]);
    sync<L>();
  } else {  // sums may have left the range
    sync<L>();
    log_columns<L>(s, reg);
    if (!(error < 2.0)) error = 2.0;
  }
  return done;
}

// A start for small λ: log y from the potentials of the exact plan.
template <int L> DEVICE void exact_start(const Scaling& s, double reg, const i64* row_mass, const i64* column_mass) {
  double top = 0.0;
  for (int i = 0; i < s.n; ++i)
    for (int j = lane_of(L); j < s.m; j += L) top = fmax(top, s.cost[i * s.ld + j]);
  top = largest<L>(top);
  const WideTree t = wide_tree(s.tree, s.n, s.m, s.cost, s.ld);
  solve<L, WIDE_SHIFT>(t, row_mass, column_mass, false, 1e-12 * top);
  for (int j = lane_of(L); j < s.m; j += L) s.log_y[j] = t.pot[s.n + j] / reg + log(s.b[j]);
  sync<L>();
}

// Solve from log_y (warm) for a while, and from the exact potentials where that was no good start.
template <int L>
DEVICE int log_pair(const Scaling& s, double reg, const i64* row_mass, const i64* column_mass, bool warm, double tol,
                    int limit, double& error) {
  int done = 0;
  error = INFINITE;
  if (warm) done = solve_log<L>(s, reg, tol, limit < 60 ? limit : 60, error);
  if (!(error <= tol)) {
    exact_start<L>(s, reg, row_mass, column_mass);
    done += solve_log<L>(s, reg, tol, limit, error);
  }
  return done;
}

// ⟨f, a⟩ + ⟨g, b⟩ with f = λ log(x/a), g = λ log(y'/b).
template <int L> DEVICE double dual_value(const Scaling& s, double reg) {
  double total = 0.0;
  for (int i = lane_of(L); i < s.n; i += L) total += s.a[i] * (s.log_x[i] - log(s.a[i]));
  for (int j = lane_of(L); j < s.m; j += L) total += s.b[j] * (s.log_y[j] - log(s.b[j]));
  return fmax(reg * sum<L>(total), 0.0);
}

template <int L> DEVICE double plan_cost(const Scaling& s) {
  double total = 0.0;
  for (int i = 0; i < s.n; ++i)
    for (int j = lane_of(L); j < s.m; j += L) total += s.kernel[i * s.ld + j] * s.cost[i * s.ld + j];
  return sum<L>(total);
}

template <int L> DEVICE double gather(const Pairs& q, i64 lo, int n, i64 to, int m, const real* cost, double* part) {
  const int ld = m | 1;
  double top = 0.0;
  for (int i = 0; i < n; ++i) {
    const real* row = cost + q.indices[lo + i] * q.n_states;
    for (int j = lane_of(L); j < m; j += L) {
      part[i * ld + j] = (double)row[q.indices[to + j]];
      top = fmax(top, part[i * ld + j]);
    }
  }
  sync<L>();
  return largest<L>(top);
}

// What rounding may do to `dual_value`; see `budget.value_rounding`.
DEVICE inline double value_rounding(int terms, double reg, double top, double eps) {
  return eps * (reg * (terms + 8) + 8.0 * top);
}

// And what it does beside that where scalings start from logarithms up to `far`: these, and the ones that make good for
// them in the end, are rounded as numbers of that size, and so are the exponents of the kernel.
DEVICE inline double start_rounding(double far, double reg, double eps) { return 2.0 * eps * reg * far; }

// (1 + x) log(1 + x) − x for x ≥ −1, to full relative precision.
DEVICE inline double excess(double x) {
  if (fabs(x) > 0.03) return x > -1.0 ? (1.0 + x) * log1p(x) - x : 1.0;
  double total = 0.0, power = x * x;
  for (int k = 2; k < 12; ++k) { total += power / (k * (k - 1)); power *= -x; }
  return total;
}

// mass log(mass/uv) − mass + uv ≥ 0: what an entry adds to KL(ω ‖ a⊗b) where both have the same total.
DEVICE inline double entropy_term(double mass, double u, double v) {
  if (!(mass > 0.0)) return u * v;
  const double x = mass / u / v - 1.0;
  if (fabs(x) <= 0.03) return u * v * excess(x);
  return mass * (log(mass / u) - log(v)) - mass + u * v;
}

// KL(ω ‖ a⊗b) of the 2 × 2 plan that has `shift` less than a⊗b on the diagonal, and as much more beside it.
DEVICE inline double shifted_term(double mass, double shift) {
  return mass > 0.0 ? mass * excess(fmax(shift / mass, -1.0)) : 0.0;
}
DEVICE inline double relative_entropy(double a0, double a1, double b0, double b1, double shift) {
  return shifted_term(a0 * b0, -shift) + shifted_term(a1 * b1, -shift) + shifted_term(a0 * b1, shift) +
         shifted_term(a1 * b0, shift);
}

DEVICE inline void swap(double& x, double& y) { const double z = x; x = y; y = z; }

// ⟨ω, C⟩ of the entropic plan between (a0, a1) and (b0, b1), and with λ KL added where `as_value`; as on the CPU, where
// it is explained.
DEVICE inline double two_by_two_entropic(double a0, double a1, double b0, double b1, double c00, double c01, double c10,
                                         double c11, double reg, bool as_value) {
  if (c00 + c11 < c01 + c10) { swap(b0, b1); swap(c00, c01); swap(c10, c11); }
  if (a0 + b0 > a1 + b1) { swap(a0, a1); swap(b0, b1); swap(c00, c11); swap(c01, c10); }
  const double gain = (c00 + c11 - c01 - c10) / reg, odds = exp(-gain), less = -expm1(-gain);
  const double rest = fmax(a1 - b0, 0.0);
  double half = rest + odds * (a0 + b0), t = 0.0;
  if (half > 0.0) t = 2.0 * odds * a0 * b0 / (half + sqrt(half * half + 4.0 * less * odds * a0 * b0));
  const double one = a0 * b1, other = a1 * b0;
  half = fmax(1.0 - less * (one + other), 0.0);
  double shift = 2.0 * less * one * other / (half + sqrt(fmax(half * half - 4.0 * less * less * one * other, 0.0)));
  if (!(shift <= a0 * b0)) shift = a0 * b0;
  const double cost = t * c00 + (one + shift) * c01 + (other + shift) * c10 + (rest + t) * c11;
  return as_value ? cost + reg * relative_entropy(a0, a1, b0, b1, shift) : cost;
}

DEVICE inline double pair_tolerance(double biggest, double inv_p, double accuracy, double tightest, double loosest) {
  const double share = inv_p == 1.0 ? 0.9 : 0.2;
  return fmax(fmin(loosest, share * accuracy / root(biggest, inv_p)), tightest);
}

// Where λ is a billionth of the largest cost, exact transport takes over, and where it is so large that its logarithms
// lose their digits, the product plan does; see the CPU's module `sinkhorn` for the errors.
#define NEARLY_EXACT 1e9
DEVICE inline bool nearly_product(double biggest, double reg, double rounding) {
  return biggest * biggest <= 8.0 * reg * rounding;
}

// Closed forms of entropic transport; false where there is none.
template <int L>
DEVICE bool closed_form(const Pairs& q, i64 lo, int n, i64 to, int m, const real* cost, double reg, bool as_value,
                        double& value) {
  if (n == 1 || m == 1) {
    value = product_cost<L>(q, lo, n, to, m, cost);
    return true;
  }
  if (n + m != 4) return false;
  const real* first = cost + q.indices[lo] * q.n_states;
  const real* second = cost + q.indices[lo + 1] * q.n_states;
  const u32 z = q.indices[to], t = q.indices[to + 1];
  value = two_by_two_entropic(q.probs[lo], q.probs[lo + 1], q.probs[to], q.probs[to + 1], first[z], first[t], second[z],
                              second[t], reg, as_value);
  return true;
}
