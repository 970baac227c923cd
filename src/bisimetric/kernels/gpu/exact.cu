// Exact transport between all pairs of rows, with the tree of each pair kept.

// Any supports, one warp a pair. kept: parents of the nodes [pairs, 2·widest], the first one 0 where there is none.
extern "C" __global__ void __launch_bounds__(128)
exact_pairs(PAIR_ARGUMENTS, const i64* mass, const real* cost, double inv_p, double share, i64 widest, double* work,
            i64 keep, unsigned short* kept, real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    const int L = LANES;
    const double top = double_of(tally->top), tol = share * top;
    const i64 warp = global_thread() / L, warps = all_threads() / L;
    const int lane = lane_of(L);
    double* part = work + warp * (widest * widest + 8 * widest);
    double worst = inv_p == 1.0 ? tol : 0.0;
    u64 pivots = 0;
    for (i64 p = warp; p < q.rows * q.n_members; p += warps) {
      const i64 a = q.a0 + p / q.n_members, b = p % q.n_members;
      if (b < a + q.first) continue;
      const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
      const int n = (int)(q.indptr[q.members[a] + 1] - lo), m = (int)(q.indptr[q.members[b] + 1] - to);
      double value = 0.0, error = tol;
      if (top == 0.0) {
        value = 0.0;
      } else if (n == 1 || m == 1) {
        value = product_cost<L>(q, lo, n, to, m, cost);
      } else if (n + m == 4) {
        const real* x = cost + q.indices[lo] * q.n_states;
        const real* y = cost + q.indices[lo + 1] * q.n_states;
        const u32 z = q.indices[to], t = q.indices[to + 1];
        value = two_by_two(q.probs[lo], q.probs[to], x[z], x[t], y[z], y[t]);
      } else {
        double biggest = 0.0;
        for (int i = 0; i < n; ++i) {
          const real* row = cost + q.indices[lo + i] * q.n_states;
          for (int j = lane; j < m; j += L) {
            part[i * m + j] = (double)row[q.indices[to + j]];
            biggest = fmax(biggest, part[i * m + j]);
          }
        }
        if (inv_p != 1.0) error = tol * (largest<L>(biggest) / top);
        const WideTree tree = wide_tree(part + widest * widest, n, m, part);
        unsigned short* mine = keep ? kept + pair_number(q, a, b) * 2 * widest : kept;
        const bool warm = keep && mine[0] != 0;
        if (warm)
          for (int v = 1 + lane; v < n + m; v += L) tree.parent[v] = mine[v];
        sync<L>();
        const int more = solve<L, WIDE_SHIFT>(tree, mass + lo, mass + to, warm, error);
        if (keep) {
          for (int v = 1 + lane; v < n + m; v += L) mine[v] = (unsigned short)tree.parent[v];
          if (lane == 0) mine[0] = 1;
        }
        value = tree_value<L, WIDE_SHIFT>(tree, 1.0 / 281474976710656.0);
        pivots += more;
        sync<L>();
      }
      const double answer = root(value, inv_p);
      if (inv_p != 1.0) worst = fmax(worst, answer - root(fmax(value - error, 0.0), inv_p));
      if (lane == 0) out[(a - q.a0) * q.n_members + b] = (real)answer;
    }
    if (lane == 0) {
      raise(&tally->error, worst);
      if (pivots) atomicAdd(&tally->iterations, pivots);
    }
  );
}
