// Transport inside a relative-entropy ball, and rigorous bounds on exact transport from entropic potentials.

// Least cost over 2 × 2 couplings with KL ≤ radius, and how far it may be off; as on the CPU, where it is explained.
DEVICE inline double two_by_two_ball(double a0, double a1, double b0, double b1, double c00, double c01, double c10,
                                     double c11, double radius, double& off) {
  if (c00 + c11 < c01 + c10) { swap(b0, b1); swap(c00, c01); swap(c10, c11); }
  double good = 0.0, bad = fmin(a0 * b0, a1 * b1);
  if (relative_entropy(a0, a1, b0, b1, bad) <= radius) {
    const double value = two_by_two(a0, a1, b0, b1, c00, c01, c10, c11);
    off = two_by_two_doubt(a0, a1, b0, b1, c00, c01, c10, c11, value);
    return value;
  }
  for (int k = 0; k < 80; ++k) {
    const double shift = 0.5 * (good + bad);
    if (relative_entropy(a0, a1, b0, b1, shift) <= radius) good = shift; else bad = shift;
  }
  const double diagonal = fmax(a0 * b0 - good, 0.0) * c00 + fmax(a1 * b1 - good, 0.0) * c11;
  const double value = diagonal + (a0 * b1 + good) * c01 + (a1 * b0 + good) * c10;
  off = (bad - good + 8.0 * EPS * good) * (c00 + c11 - c01 - c10) + 8.0 * EPS * value;
  return value;
}

// The next log λ: KL is nearly a power of λ, so a secant in logs, kept inside (low, high).
DEVICE inline double next_trial(double log_reg, double miss, double last_reg, double last_miss, double low, double high) {
  double guess = INFINITE;
  if (isnan(last_reg)) guess = log_reg + 0.7 * miss;
  else if (miss != last_miss) guess = log_reg - miss * (log_reg - last_reg) / (miss - last_miss);
  return low < guess && guess < high ? guess : 0.5 * (low + high);
}

// ⟨ω̃, C⟩ and KL(ω̃ ‖ a⊗b) of the plan in s.kernel made feasible: excess columns are cut, what is missing is spread.
template <int L> DEVICE double rounded(const Scaling& s, double& kl) {
  const int n = s.n, m = s.m, lane = lane_of(L);
  double* cut = s.q;
  double* short_a = s.x;
  double* short_b = s.y;
  for (int j = lane; j < m; j += L) {
    double total = 0.0;
    for (int i = 0; i < n; ++i) total += s.kernel[i * s.ld + j];
    cut[j] = total > 0.0 ? fmin(1.0, s.b[j] / total) : 0.0;
    short_b[j] = fmax(s.b[j] - total * cut[j], 0.0);
  }
  sync<L>();
  double missing = 0.0;
  for (int i = lane; i < n; i += L) {
    double row = 0.0;
    for (int j = 0; j < m; ++j) row += s.kernel[i * s.ld + j] * cut[j];
    short_a[i] = fmax(s.a[i] - row, 0.0);
    missing += short_a[i];
  }
  sync<L>();
  missing = sum<L>(missing);
  double total = 0.0, entropy = 0.0;
  for (int i = 0; i < n; ++i)
    for (int j = lane; j < m; j += L) {
      double mass = s.kernel[i * s.ld + j] * cut[j];
      if (missing > 0.0) mass += short_a[i] * short_b[j] / missing;
      total += mass * s.cost[i * s.ld + j];
      entropy += entropy_term(mass, s.a[i], s.b[j]);
    }
  sync<L>();
  kl = sum<L>(entropy);
  return sum<L>(total);
}

// The largest |log y| of a start, and what it adds to `value_rounding`, which counts logarithms up to 4 max C/λ.
template <int L> DEVICE double farthest(const Scaling& s) {
  double far = 0.0;
  for (int j = lane_of(L); j < s.m; j += L) far = fmax(far, fabs(s.log_y[j]));
  return largest<L>(far);
}
DEVICE inline double far_start(double far, double reg, double top) {
  return reg * far > 4.0 * top ? start_rounding(far, reg, EPS) : 0.0;
}

// Search λ until KL = radius. For each λ, value_λ − λ·radius bounds the answer from below (Lagrange), and so does the cost
// of the product plan less max C √(radius/2) (Pinsker). From above: the plan made feasible, and mixed with the product plan
// until its KL, which is convex, is within the radius. Returns the best lower bound and the gap to the upper one; s.log_y
// and log_reg are the start and the end.
template <int L>
DEVICE double ball_pair(const Scaling& s, double radius, const i64* row_mass, const i64* column_mass, bool& warm,
                        double& log_reg, double top, double inv_p, double tol, int limit, double accuracy, double& gap,
                        u64& iterations) {
  gap = 0.0;
  if (top == 0.0) return 0.0;
  const int nodes = s.n + s.m;
  const double least = 0.3 * accuracy / (log((double)s.n) + log((double)s.m));
  const double floor = log(fmin(fmax(least, 1e-8 * top), 1e-3 * top)), ceiling = log(1e7 * top);
  double low = floor, high = ceiling, part = 0.0, last_reg = NOT_A_NUMBER, last_miss = NOT_A_NUMBER;
  log_reg = warm ? fmin(fmax(log_reg, floor), ceiling) : log(0.1 * top);
  for (int i = 0; i < s.n; ++i)
    for (int j = lane_of(L); j < s.m; j += L) part += s.a[i] * s.b[j] * s.cost[i * s.ld + j];
  const double product = sum<L>(part);
  double upper = product * (1.0 + nodes * EPS);
  double best = fmax(product - top * sqrt(0.5 * radius) - (upper - product), 0.0);
  for (int trial = 0; trial < 80; ++trial) {
    if (root_error(best, upper - best, 0.0, inv_p) <= accuracy || high - low < 1e-14) break;
    const double reg = exp(log_reg), from_logs = warm ? far_start(farthest<L>(s), reg, top) : 0.0;
    double error;
    iterations += log_pair<L>(s, reg, row_mass, column_mass, warm, tol, limit, error);
    warm = true;
    const double value = dual_value<L>(s, reg) - value_rounding(nodes, reg, top, EPS) - from_logs;
    double kl;
    const double cost = rounded<L>(s, kl), share = kl > radius ? radius / kl : 1.0;
    best = fmax(best, value - reg * radius);
    upper = fmin(upper, share * cost + (1.0 - share) * product + 4.0 * EPS * nodes * top);
    if (kl <= radius) high = log_reg; else low = log_reg;
    if (high <= floor) {  // the ball holds even this nearly exact plan: it does not bind
      const WideTree t = wide_tree(s.tree, s.n, s.m, s.cost, s.ld);
      solve<L, WIDE_SHIFT>(t, row_mass, column_mass, false, 1e-13 * top);
      const double exact = tree_value<L, WIDE_SHIFT>(t, 1.0 / 281474976710656.0);
      best = fmax(best, exact - (1e-13 + nodes * (1.0 / 281474976710656.0 + 4.0 * EPS)) * top);
      sync<L>();
      break;
    }
    const double miss = log(fmax(kl, 1e-300) / radius);
    double guess = next_trial(log_reg, miss, last_reg, last_miss, low, high);
    if (low == floor && guess < floor + 1.0) guess = floor;
    last_reg = log_reg;
    last_miss = miss;
    for (int j = lane_of(L); j < s.m; j += L) {  // potentials, not scalings, carry over to another λ
      const double mass = log(s.b[j]);
      s.log_y[j] = mass + (s.log_y[j] - mass) * exp(log_reg - guess);
    }
    sync<L>();
    log_reg = guess;
  }
  best = fmin(best, upper);
  gap = upper - best;
  return best;
}

extern "C" __global__ void __launch_bounds__(128)
ball_pairs(PAIR_ARGUMENTS, const i64* mass, const real* cost, double radius, const double* entropies, double inv_p,
           double tol, i64 limit, double accuracy, i64 widest, double* work, i64 keep, i64 stride, double* kept,
           real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    const int L = LANES;
    const int lane = lane_of(L);
    const i64 warp = global_thread() / L, warps = all_threads() / L;
    double* mine = work + warp * WORK_NUMBERS(widest);
    double worst = 0.0;
    u64 iterations = 0;
    for (i64 p = warp; p < q.count(); p += warps) {
      const i64 a = q.row(p), b = q.column(p);
      if (b < q.reach.begin(a)) continue;
      const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
      const int n = (int)(q.indptr[q.members[a] + 1] - lo), m = (int)(q.indptr[q.members[b] + 1] - to);
      double value, above = 0.0, below = 0.0;
      if (n == 1 || m == 1 || radius == 0.0) {
        value = product_cost<L>(q, lo, n, to, m, cost);
        above = below = (n + m + 4) * EPS * value;
      } else if (n + m == 4) {
        const real* x = cost + q.indices[lo] * q.n_states;
        const real* y = cost + q.indices[lo + 1] * q.n_states;
        const u32 z = q.indices[to], t = q.indices[to + 1];
        const double* pa = q.probs + lo;
        const double* pb = q.probs + to;
        value = two_by_two_ball(pa[0], pa[1], pb[0], pb[1], x[z], x[t], y[z], y[t], radius, above);
        below = above;
      } else if (radius >= fmin(entropies[q.members[a]], entropies[q.members[b]])) {
        continue;  // exact transport, which the caller has put there
      } else {
        const Scaling s = work_space(mine, widest, n, m, q.probs + lo, q.probs + to);
        const double biggest = gather<L>(q, lo, n, to, m, cost, s.cost);
        double* store = keep ? kept + q.reach.number(a, b) * stride : kept;
        bool warm = keep && !isnan(store[0]);
        double log_reg = warm ? store[0] : 0.0;
        if (warm)
          for (int j = lane; j < m; j += L) s.log_y[j] = store[1 + j];
        sync<L>();
        value = ball_pair<L>(s, radius, mass + lo, mass + to, warm, log_reg, biggest, inv_p, tol, (int)limit, accuracy,
                             above, iterations);
        if (keep && warm) {  // else it was over before there were any potentials
          for (int j = lane; j < m; j += L) store[1 + j] = s.log_y[j];
          if (lane == 0) store[0] = log_reg;
        }
        sync<L>();
      }
      worst = fmax(worst, root_error(value, above, below, inv_p));
      if (lane == 0) out[p] = (real)root(value, inv_p);
    }
    if (lane == 0) {
      raise(&tally->error, worst);
      count_iterations(tally, iterations);
    }
  );
}

// ⟨f, a⟩ + ⟨g, b⟩ after two C-transforms of f (in s.log_x), which make it dual feasible and improve it.
template <int L> DEVICE double transformed_value(const Scaling& s) {
  double total = 0.0;
  for (int j = lane_of(L); j < s.m; j += L) {
    double low = INFINITE;
    for (int i = 0; i < s.n; ++i) low = fmin(low, s.cost[i * s.ld + j] - s.log_x[i]);
    s.step[j] = low;
    total += s.b[j] * low;
  }
  sync<L>();
  for (int i = lane_of(L); i < s.n; i += L) {
    double low = INFINITE;
    for (int j = 0; j < s.m; ++j) low = fmin(low, s.cost[i * s.ld + j] - s.step[j]);
    total += s.a[i] * low;
  }
  sync<L>();
  return sum<L>(total);
}

template <int L, class T>
DEVICE void bound_all(const Pairs& q, Tally* tally, const i64* mass, const real* cost, double reg, bool own_reg,
                      double inv_p, double tol, int limit, i64 widest, double* work, bool keep, i64 stride,
                      const T* kept, real* lower, real* upper) {
  const int lane = lane_of(L);
  const double top = double_of(tally->top);
  const i64 warp = global_thread() / L, warps = all_threads() / L;
  for (i64 p = warp; p < q.count(); p += warps) {
    const i64 a = q.row(p), b = q.column(p);
    if (q.reach.corner == 0 && b <= a) continue;
    const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
    const int n = (int)(q.indptr[q.members[a] + 1] - lo), m = (int)(q.indptr[q.members[b] + 1] - to);
    double low, high, slack;
    if (n == 1 || m == 1) {
      low = high = product_cost<L>(q, lo, n, to, m, cost);
      slack = (n + m + 4) * EPS * low;
    } else if (n + m == 4) {
      const real* x = cost + q.indices[lo] * q.n_states;
      const real* y = cost + q.indices[lo + 1] * q.n_states;
      const u32 z = q.indices[to], t = q.indices[to + 1];
      const double* pa = q.probs + lo;
      const double* pb = q.probs + to;
      low = high = two_by_two(pa[0], pa[1], pb[0], pb[1], x[z], x[t], y[z], y[t]);
      slack = two_by_two_doubt(pa[0], pa[1], pb[0], pb[1], x[z], x[t], y[z], y[t], low);
    } else {
      const Scaling s = work_space(work + warp * WORK_NUMBERS(widest), widest, n, m, q.probs + lo, q.probs + to);
      const double biggest = gather<L>(q, lo, n, to, m, cost, s.cost);
      slack = 4.0 * EPS * (n + m) * biggest;
      const T* store = keep ? kept + q.reach.number(a, b) * stride : kept;
      const bool warm = keep && !isnan((double)store[0]);
      const double wanted = own_reg ? (warm ? exp((double)store[0]) : 0.01 * top) : reg;
      const double strength = fmax(wanted, 1e-8 * biggest);  // smaller ones lose their digits
      for (int j = lane; j < m; j += L) s.log_y[j] = warm ? (double)store[j + (own_reg ? 1 : 0)] : log(s.b[j]);
      sync<L>();
      double error;
      log_pair<L>(s, strength, mass + lo, mass + to, true, tol, limit, error);
      for (int i = lane; i < n; i += L) s.log_x[i] = strength * (s.log_x[i] - log(s.a[i]));
      sync<L>();
      low = fmax(transformed_value<L>(s), 0.0);
      double unused;
      high = rounded<L>(s, unused);
    }
    if (lane == 0) {
      // Stored numbers may be rounded towards the truth; what that takes away is given back.
      const double stored = sizeof(real) == 4 ? 1.2e-7 : 0.0;
      lower[p] = (real)(root(low - slack, inv_p) * (1.0 - stored));
      upper[p] = (real)(root(high + slack, inv_p) * (1.0 + stored));
    }
  }
}

extern "C" __global__ void __launch_bounds__(128)
bound_pairs(PAIR_ARGUMENTS, const i64* mass, const real* cost, double reg, i64 own_reg, double inv_p, double tol,
            i64 limit, i64 widest, double* work, i64 keep, i64 stride, const void* kept, real* lower, real* upper) {
  EACH_THREAD(
    PAIR_VALUES
    if (own_reg)
      bound_all<LANES>(q, tally, mass, cost, reg, true, inv_p, tol, (int)limit, widest, work, keep != 0, stride,
                       (const double*)kept, lower, upper);
    else
      bound_all<LANES>(q, tally, mass, cost, reg, false, inv_p, tol, (int)limit, widest, work, keep != 0, stride,
                       (const real*)kept, lower, upper);
  );
}
