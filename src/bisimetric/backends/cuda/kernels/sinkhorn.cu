// Sinkhorn distances between all pairs of rows, with log y of each pair kept.

// Any supports and any λ, one warp a pair: all pairs (listed = 0), or those that the fast kernels left in `list`.
extern "C" __global__ void __launch_bounds__(128)
sinkhorn_any(PAIR_ARGUMENTS, const i64* mass, const real* cost, double reg, i64 as_value, double inv_p, double accuracy,
             double tightest, double loosest, i64 limit, i64 widest, double* work, i64 in_shared, i64 keep, i64 stride,
             real* kept, i64 listed, const u32* list, real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    const int L = LANES;
    const i64 warp = global_thread() / L, warps = all_threads() / L;
    const i64 count = listed ? (i64)tally->left : q.count();
    const double top = double_of(tally->top);
    const int lane = lane_of(L);
    double* mine = WORK_OF_WARP(WORK_NUMBERS(widest));
    double worst = 0.0;
    u64 iterations = 0;
    for (i64 k = warp; k < count; k += warps) {
      const i64 p = listed ? (i64)list[k] : k;
      const i64 a = q.row(p), b = q.column(p);
      if (b < q.reach.begin(a)) continue;
      const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
      const int n = (int)(q.indptr[q.members[a] + 1] - lo), m = (int)(q.indptr[q.members[b] + 1] - to);
      double value = 0.0, above = 0.0, below = 0.0;
      if (top > 0.0 && closed_form<L>(q, lo, n, to, m, cost, reg, as_value != 0, value)) {
        above = below = 32.0 * EPS * value;
      } else if (top > 0.0) {
        const Scaling s = work_space(mine, widest, n, m, q.probs + lo, q.probs + to);
        const double biggest = gather<L>(q, lo, n, to, m, cost, s.cost);
        const double rounding = as_value ? value_rounding(n + m, reg, biggest, EPS) : 0.0;
        if (as_value && nearly_product(biggest, reg, rounding)) {
          value = product_cost<L>(q, lo, n, to, m, cost);
          above = 8.0 * EPS * value;
          below = above + biggest * biggest / (8.0 * reg);
        } else if (biggest > NEARLY_EXACT * reg) {
          const WideTree tree = wide_tree(s.tree, n, m, s.cost, s.ld);
          solve<L, WIDE_SHIFT>(tree, mass + lo, mass + to, false, 1e-13 * biggest);
          value = tree_value<L, WIDE_SHIFT>(tree, 1.0 / 281474976710656.0);
          below = (1e-13 + (n + m) * (1.0 / 281474976710656.0 + 4.0 * EPS)) * biggest;
          above = below + reg * log((double)(n < m ? n : m));
          sync<L>();
        } else {
          real* store = keep ? kept + q.reach.number(a, b) * stride : kept;
          bool warm = keep && !isnan(store[0]);
          if (warm)
            for (int j = lane; j < m; j += L) s.log_y[j] = (double)store[j];
          sync<L>();
          double tol = pair_tolerance(biggest, inv_p, accuracy, tightest, loosest), error;
          for (;;) {
            iterations += log_pair<L>(s, reg, mass + lo, mass + to, warm, tol, (int)limit, error);
            value = as_value ? dual_value<L>(s, reg) : plan_cost<L>(s);
            const double slack = fmin(error + (n + m) * EPS, 2.0) * biggest;
            above = slack + rounding;
            below = as_value ? rounding : slack;
            if (root_error(value, above, below, inv_p) <= accuracy || tol <= tightest || error > tol) break;
            tol = fmax(0.01 * tol, tightest);  // a root magnifies errors near 0
            warm = true;
          }
          if (keep)
            for (int j = lane; j < m; j += L) store[j] = (real)s.log_y[j];
          sync<L>();
        }
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

// Supports of at most N states, P neighbouring lanes a pair: each has N / P rows of the plan in registers, and y. Costs
// are gathered once, past the registers, and wait in shared memory until the cost of the plan is wanted. Lanes go
// through all loops together; pairs that are finished hold their y. Leaves what does not converge soon in `list`.
template <int N, int P>
DEVICE void small_pair(Tally* tally, const u32* slots, const real* slot_probs, const Reach& reach, i64 a0,
                       i64 n_states, const real* strips, double reg, bool as_value, double inv_p, double accuracy,
                       double tightest, double loosest, int limit, bool keep, real* kept, u32* list, real* out,
                       double& worst, u32& iterations) {
  constexpr int THREADS = 4 * LANES, R = N / P, E = 16 / sizeof(real), H = R / E;
  static_assert(H * E * P == N, "a lane's part of a column is made of 16 bytes");
  typedef Packed<real, E> Chunk;
  const i64 row = blockIdx.y, a = a0 + row, n_members = reach.members;
  const int part = threadIdx.x % P;
  i64 b = reach.corner + (i64)blockIdx.x * (THREADS / P) + threadIdx.x / P;
  const bool inside = b < n_members && b >= reach.begin(a);
  if (!any_lane(inside)) return;
  if (!inside) b = b < n_members ? reach.begin(a) : n_members - 1;  // some pair, to go along
  const u32 p = (u32)(row * reach.width() + b - reach.corner);
  const double top = double_of(tally->top);
  if (top == 0.0) {
    if (inside && part == 0) out[p] = 0;
    return;
  }
  const double rounding = as_value ? value_rounding(2 * N, reg, top, REAL_EPS) : 0.0;
  if (top > NEARLY_EXACT * reg || (as_value && nearly_product(top, reg, rounding))) {  // near a limit of λ
    if (inside && part == 0) list[atomicAdd(&tally->left, (u64)1)] = p;
    return;
  }
  const real* strip = strips + row * n_states * N + part * E;
  Chunk* stash = (Chunk*)pool + threadIdx.x;  // chunk h of column j at j·H + h: rows (h·P + part)·E and after
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const real* column = strip + (i64)slots[j * n_members + b] * N;
#pragma unroll
    for (int h = 0; h < H; ++h) copy_16<(P > 1)>(stash + (j * H + h) * THREADS, column + h * P * E);
  }
  const real rate = (real)(1.0 / reg);
  real k[R][N], y[N], q[N], pa[R], pb[N], g[R];
#pragma unroll
  for (int j = 0; j < N; ++j) pb[j] = slot_probs[j * n_members + b];
#pragma unroll
  for (int i = 0; i < R; ++i) pa[i] = slot_probs[((i / E * P + part) * E + i % E) * n_members + a];
  real* store = kept + N * reach.number(a, b);
  Packed<real, N> start;
  if (keep) start = *(Packed<real, N>*)store;
  const bool warm = keep && !isnan(start.at[0]);
  copied();
  real biggest = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const real from = pb[j] > 0 ? (warm ? start.at[j] : (real)log(pb[j])) : 0;
    if (j / R == part) g[j % R] = from;
#pragma unroll
    for (int h = 0; h < H; ++h) {
      const Chunk costs = stash[(j * H + h) * THREADS];
#pragma unroll
      for (int e = 0; e < E; ++e) {
        const int i = h * E + e;
        k[i][j] = pb[j] > 0 ? from - costs.at[e] * rate : (real)-1e30;
        if (inv_p != 1.0 && pb[j] > 0 && pa[i] > 0) biggest = biggest > costs.at[e] ? biggest : costs.at[e];
      }
    }
    q[j] = 0;
  }
  double value = 0.0;
#pragma unroll
  for (int i = 0; i < R; ++i) {  // exact rows: a_i exp(k_ij − max) / Σ_j
    real high = k[i][0], total = 0;
#pragma unroll
    for (int j = 1; j < N; ++j) high = high > k[i][j] ? high : k[i][j];
#pragma unroll
    for (int j = 0; j < N; ++j) { k[i][j] = exp(k[i][j] - high); total += k[i][j]; }
    const real share = pa[i] * inverse(total);
#pragma unroll
    for (int j = 0; j < N; ++j) { k[i][j] *= share; q[j] += k[i][j]; }
    if (as_value) value -= (double)pa[i] * ((double)high + (double)log(total));
  }
  double scale_of_errors = top;
  if (inv_p != 1.0) {
#pragma unroll
    for (int n = 1; n < P; n *= 2) {
      const real other = across(biggest, n);
      biggest = biggest > other ? biggest : other;
    }
    scale_of_errors = (double)biggest;
  }
  const double tol = pair_tolerance(scale_of_errors, inv_p, accuracy, tightest, loosest);
  real error = 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    q[j] = sum_of_parts<P>(q[j]);
    error += fabs(q[j] - pb[j]);
    y[j] = 1;
  }
  int done = 1, look = 8;
  real before = error;
  bool busy = inside && error > (real)tol && done < limit;
  while (any_lane(busy)) {
    if (busy && done >= look) {
      const real speed = log(fmax(before / error, (real)1.000001)) / 6;
      busy = !(log(error / (real)tol) / speed > (real)limit);
      look = done + 6;
      before = error;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {  // the same y gives the same q and error again
      if (busy) y[j] = pb[j] > 0 ? pb[j] * inverse(q[j]) : 0;
      q[j] = 0;
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
      real total = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) total += k[i][j] * y[j];
      const real x = pa[i] > 0 ? pa[i] * inverse(total) : 0;
#pragma unroll
      for (int j = 0; j < N; ++j) q[j] += x * k[i][j];
    }
    real off = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      q[j] = sum_of_parts<P>(q[j]);
      off += fabs(q[j] * y[j] - pb[j]);
    }
    if (busy) { error = off; ++done; }
    busy = busy && error > (real)tol && done < limit;
  }
  const bool finite = error <= (real)2;  // false for NaN
  if (as_value || keep) {
    Packed<real, R> mine;
#pragma unroll
    for (int c = 0; c < R; ++c) {
      real sums = q[c], mass = pb[c];  // y' = b/q: see `scaling.cuh`
#pragma unroll
      for (int n = 1; n < P; ++n)
        if (part == n) { sums = q[n * R + c]; mass = pb[n * R + c]; }
      if (as_value && mass > 0) value += (double)mass * ((double)g[c] - (double)log(sums));
      mine.at[c] = !finite ? (real)NOT_A_NUMBER : mass > 0 ? g[c] + (real)log(mass * inverse(sums)) : 0;
    }
    if (keep && inside) ((Packed<real, R>*)store)[part] = mine;
  }
  real x[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    real total = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) total += k[i][j] * y[j];
    x[i] = pa[i] > 0 && done > 1 ? pa[i] * inverse(total) : 1;
    if (as_value && pa[i] > 0) value += (double)pa[i] * (double)log(x[i]);
  }
  double from_logs = 0.0;
  if (as_value) {
    value = fmax(reg * sum_of_parts<P>(value), 0.0);
    real far = 0;
#pragma unroll
    for (int c = 0; c < R; ++c) far = fmax(far, (real)fabs(g[c]));  // 0 where there is no mass
#pragma unroll
    for (int n = 1; n < P; n *= 2) far = fmax(far, across(far, n));
    from_logs = start_rounding((double)far, reg, REAL_EPS);
  } else {
    real sharp = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      real part_of_column = 0;
#pragma unroll
      for (int h = 0; h < H; ++h) {
        const Chunk costs = stash[(j * H + h) * THREADS];
#pragma unroll
        for (int e = 0; e < E; ++e) part_of_column += x[h * E + e] * k[h * E + e][j] * costs.at[e];
      }
      sharp += part_of_column * y[j];
    }
    value = (double)sum_of_parts<P>(sharp);
  }
  if (!inside || part != 0) return;
  iterations = done;
  const double slack = ((double)error + 2 * N * REAL_EPS) * scale_of_errors, under = as_value ? 0.0 : slack;
  const double missing = root_error(value, slack, under, inv_p);
  if (!((double)error <= tol) || !(missing <= accuracy || tol <= tightest)) {
    if (limit > 8) {  // few iterations are asked for by those who want just these
      list[atomicAdd(&tally->left, (u64)1)] = p;
      return;
    }
  }
  worst = root_error(value, slack + rounding + from_logs, under + rounding + from_logs, inv_p);
  out[p] = (real)root(value, inv_p);
}

#define SMALL_SINKHORN(N, P, BLOCKS)                                                                                  \
  extern "C" __global__ void __launch_bounds__(4 * LANES, BLOCKS)                                                     \
  sinkhorn_small_##N(Tally* tally, const u32* slots, const real* slot_probs, i64 n_members, i64 first, i64 corner,    \
                     i64 a0, i64 n_states, const real* strips, double reg, i64 as_value, double inv_p,                \
                     double accuracy, double tightest, double loosest, i64 limit, i64 keep, real* kept, u32* list,    \
                     real* out) {                                                                                     \
    EACH_THREAD(                                                                                                      \
      if (tally->done) return;                                                                                        \
      const Reach reach = {n_members, first, corner};                                                                 \
      if (corner + ((i64)blockIdx.x + 1) * (blockDim.x / (P)) <= reach.begin(a0 + blockIdx.y)) return;                \
      double worst = 0.0;                                                                                             \
      u32 iterations = 0;                                                                                             \
      small_pair<N, P>(tally, slots, slot_probs, reach, a0, n_states, strips, reg, as_value != 0, inv_p, accuracy,    \
                       tightest, loosest, (int)limit, keep != 0, kept, list, out, worst, iterations);                 \
      worst = largest<LANES>(worst);                                                                                  \
      iterations = sum<LANES>(iterations);                                                                            \
      if (lane_of(LANES) == 0) {                                                                                      \
        raise(&tally->error, worst);                                                                                  \
        count_iterations(tally, iterations);                                                                          \
      }                                                                                                               \
    );                                                                                                                \
  }
SMALL_SINKHORN(4, 1, BY_SIZE(8, 4))
SMALL_SINKHORN(8, PARTS(SINKHORN_PARTS), BY_SIZE(5, 3))  // as many blocks as hardly any registers spill with

#ifdef __CUDACC__
// G neighbouring lanes, a warp or half of one, that go their way without the others.
template <int G> struct Group {
  const int lane;
  const u32 mask;
  DEVICE Group() : lane(threadIdx.x % G), mask(G == 32 ? ~0u : ((1u << G % 32) - 1) << (threadIdx.x & 31 & ~(G - 1))) {}
  DEVICE void sync() const { __syncwarp(mask); }
  DEVICE bool all(bool x) const { return (__ballot_sync(mask, x) & mask) == mask; }
  template <class T> DEVICE T from(T x, int i) const { return __shfl_sync(mask, x, i, G); }
  template <class T> DEVICE T sum(T x) const {
#pragma unroll
    for (int k = G / 2; k > 0; k /= 2) x += __shfl_xor_sync(mask, x, k);
    return x;
  }
  template <class T> DEVICE T largest(T x) const {
#pragma unroll
    for (int k = G / 2; k > 0; k /= 2) { const T other = __shfl_xor_sync(mask, x, k); x = x > other ? x : other; }
    return x;
  }
};

// A Newton step on log y for the plan in `tile` (rows over columns, column sums `sums`): lane j gets the step of column j,
// with the last of the m columns held. 0 for all where the matrix is not positive.
template <int W, int G>
__device__ __noinline__ real warp_newton(const real (*tile)[W + 1], real* line, int n, int m, real pa, real pb, real sums) {
  constexpr int PACK = 16 / sizeof(real);
  const Group<G> group;
  const Packed<real, PACK>* lines = (const Packed<real, PACK>*)line;
  const int lane = group.lane, k = m - 1;
  const bool mine = lane < k;
  real t[W];
#pragma unroll
  for (int l = 0; l < W; ++l) t[l] = 0;
  for (int i = 0; i < n; ++i) {  // −ωᵀ diag(1/a) ω
    const real mass = group.from(pa, i);
    const real left = mine && mass > 0 ? tile[i][lane] * inverse(mass) : 0;
#pragma unroll
    for (int l = 0; l < W; ++l) t[l] -= left * tile[i][l];
  }
  real right = mine ? pb - sums : 0, diagonal = 1;
#pragma unroll
  for (int l = 0; l < W; ++l) {
    if (l >= k) t[l] = 0;
    if (l == lane) t[l] = mine ? t[l] + sums * (real)(1.0 + 1e-12) + (real)1e-18 : 1;
  }
  bool positive = true;
#pragma unroll
  for (int c = 0; c < W; ++c) {  // Gauss and Jordan, one row a lane
    if (c >= k) break;
    if (lane == c) {
#pragma unroll
      for (int l = 0; l < W; ++l) line[l] = t[l];
      line[W] = right;
      diagonal = t[c];
    }
    group.sync();
    const real pivot = line[c];
    positive = positive && pivot > 0;
    const real factor = lane == c ? 0 : t[c] * inverse(pivot);
#pragma unroll
    for (int l = c / PACK; l < W / PACK; ++l) {
      const Packed<real, PACK> v = lines[l];
#pragma unroll
      for (int h = 0; h < PACK; ++h) t[l * PACK + h] -= factor * v.at[h];
    }
    right -= factor * line[W];
    group.sync();
  }
  const real step = mine ? right / diagonal : 0, longest = group.largest((real)fabs(step));
  if (!positive || !(longest < (real)1e30)) return 0;
  return longest > 3 ? step * (3 / longest) : step;
}

// The sum over a group in units of the tolerance, of integers; large sums and NaN are cut off.
template <int G> DEVICE inline float l1_error(const Group<G>& group, float x, float units) {
  const float scaled = x * units;
  const unsigned part = scaled < 67108864.0f ? (unsigned)scaled + 1 : 67108864u;
  return (float)(G == 32 ? __reduce_add_sync(~0u, part) : group.sum(part)) * (1.0f / 65536.0f);
}

// Σ_j k_j v_j with v in shared memory.
template <int W> DEVICE inline real dot(const real (&k)[W], const real* shared) {
  constexpr int PACK = 16 / sizeof(real);
  const Packed<real, PACK>* v = (const Packed<real, PACK>*)shared;
  real parts[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < W / PACK; ++j) {
    const Packed<real, PACK> here = v[j];
#pragma unroll
    for (int h = 0; h < PACK; ++h) parts[(j * PACK + h) & 3] += k[j * PACK + h] * here.at[h];
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

constexpr int FIRST_LOOK = 5, LOOK = 4;  // scalings between looks at the rate
constexpr float FORESEEN = 20.0f;  // scalings that a Newton step may cost

// Shared memory of a pair. Costs wait there, as they lie in strips, until the cost of the plan is wanted. Two groups of a
// warp are 16 banks apart.
template <int W, int G> struct alignas(16) GroupSpace {
  enum { NUMBERS = W * W + 2 * G + W + 4 + W * (W + 1), FILL = (48 - NUMBERS % 32) % 32 };
  real costs[W * W], x[G], y[G], line[W + 4], tile[W][W + 1], fill[FILL ? FILL : 32];

  // Costs from the strip of the row to the successors that lanes hold, past the registers.
  DEVICE void gather(const Group<G>& group, const real* strip, u32 onto) {
    constexpr int E = 16 / sizeof(real), CHUNKS = W / E;
#pragma unroll
    for (int k = 0; k < (W * CHUNKS + G - 1) / G; ++k) {
      const int chunk = k * G + group.lane, j = chunk / CHUNKS, h = chunk % CHUNKS;
      const u32 column = group.from(onto, j) * W;
      if (j < W) copy_16<true>(costs + chunk * E, strip + column + h * E);
    }
  }
};

// Supports of at most W ≤ G states, G lanes a pair. Lane r holds row r and column r of the plan in registers; x and y
// go through shared memory. Costs come in strips (see strips.cuh). So does exp(−C/λ) in double precision, where each
// exponential takes long; it is used where it cannot underflow (largest cost at most `safe`·λ). Leaves what does not
// converge soon in `list`.
template <int W, int G>
DEVICE void warp_pairs(const Pairs& q, const u32* extents, Tally* tally, const real* cost, const real* strips,
                       const real* gibbs, double safe, double reg, bool as_value, double inv_p, double accuracy,
                       double tightest, double loosest, int limit, i64 batch, bool keep, i64 stride, real* kept,
                       u32* list, real* out) {
  GroupSpace<W, G>& space = ((GroupSpace<W, G>*)pool)[threadIdx.x / G];
  const Group<G> group;
  const int lane = group.lane, place = lane < W ? lane : 0;
  real (*tile)[W + 1] = space.tile;
  real *xs = space.x, *ys = space.y;
  const double top = double_of(tally->top);
  const bool direct = sizeof(real) == 8 && top <= safe * reg;
  const double rounding = as_value ? value_rounding(2 * W, reg, top, REAL_EPS) : 0.0;
  const bool in_reach = !(top > NEARLY_EXACT * reg || (as_value && nearly_product(top, reg, rounding)));
  const real rate = (real)(1.0 / reg);
  const Reach& reach = q.reach;
  const i64 begin = reach.start(q.a0), end = reach.start(q.a0 + q.rows);
  double scale_of_errors = top, tol = pair_tolerance(top, inv_p, accuracy, tightest, loosest);
  float units = (float)(65536.0 / tol);
  double worst = 0.0;
  u64 iterations = 0, ticket = 0;
  i64 number = begin, stop = begin, a = 0, b = 0;
  if (lane == 0) ticket = atomicAdd(&tally->next, (u64)batch);
  for (;;) {  // pairs differ much in their work, so each group takes some when it is free, from the last to the first
    if (number == stop) {
      number = end - (i64)group.from(ticket, 0);
      if (number <= begin) break;
      if (lane == 0) ticket = atomicAdd(&tally->next, (u64)batch);
      stop = number - batch > begin ? number - batch : begin;
      a = row_of_pair(reach, number - 1);
      b = number - reach.start(a) + reach.begin(a);
    }
    --number;
    if (--b < reach.begin(a)) { --a; b = reach.members - 1; }
    const u32 p = (u32)((a - q.a0) * reach.width() + b - reach.corner);
    const Packed<u32, 2> here = ((const Packed<u32, 2>*)extents)[a], there = ((const Packed<u32, 2>*)extents)[b];
    const u32 lo = here.at[0], to = there.at[0];
    const int n = (int)here.at[1], m = (int)there.at[1];
    if (top == 0.0) {
      if (lane == 0) out[p] = 0;
      continue;
    }
    if (n > W || m > W || !in_reach) {
      if (lane == 0) list[atomicAdd(&tally->left, (u64)1)] = p;
      continue;
    }
    double value = 0.0;
    if (n == 1 || m == 1 || n + m == 4) {
      closed_form<G == 32 ? 32 : 1>(q, lo, n, to, m, cost, reg, as_value, value);
      worst = fmax(worst, root_error(value, 32.0 * EPS * value, 32.0 * EPS * value, inv_p));
      if (lane == 0) out[p] = (real)root(value, inv_p);
      continue;
    }
    const bool in_row = lane < n, in_column = lane < m;
    // All that is read from memory is asked for first, by all lanes, so that it is waited for twice and not five times.
    const u32 of_row = in_row ? lane : 0, of_column = in_column ? lane : 0;
    real* store = keep ? kept + number * stride : kept;
    const u32 onto = q.indices[to + of_column];
    const double row_mass = q.probs[lo + of_row], column_mass = q.probs[to + of_column];
    real g = keep ? store[of_column] : (real)NOT_A_NUMBER;
    real k[W], t[W], biggest = 0;
    const i64 strip = (a - q.a0) * q.n_states * W;
    space.gather(group, (direct ? gibbs : strips) + strip, onto);
    const real pa = in_row ? (real)row_mass : 0, pb = in_column ? (real)column_mass : 0;
    const bool warm = !isnan(group.from(g, 0));
    g = pb > 0 ? (warm ? g : (real)log(pb)) : 0;
    ys[lane] = direct ? (pb > 0 ? (real)exp(g) : 0) : (pb > 0 ? g : (real)-1e30);
    copied();
    group.sync();
#pragma unroll
    for (int j = 0; j < W; ++j) k[j] = space.costs[j * W + place];
    if (inv_p != 1.0) {
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (j < m) biggest = fmax(biggest, direct ? -(real)reg * (real)log(k[j]) : k[j]);
      biggest = group.largest(in_row ? biggest : (real)0);
    }
    real free = 0, total = 0;  // free: log of what scales the row, without a and x
    if (direct) {
#pragma unroll
      for (int j = 0; j < W; ++j) { k[j] *= ys[j]; total += k[j]; }
    } else {
      real shift = (real)-1e30;
#pragma unroll
      for (int j = 0; j < W; ++j) { k[j] = ys[j] - k[j] * rate; shift = shift > k[j] ? shift : k[j]; }
#pragma unroll
      for (int j = 0; j < W; ++j) { k[j] = exp(k[j] - shift); total += k[j]; }
      free = -shift;
    }
    if (as_value && pa > 0) free -= (real)log(total);
    const real part = pa > 0 ? pa * inverse(total) : 0;
#pragma unroll
    for (int j = 0; j < W; ++j) k[j] *= part;
    if (lane < W) {
#pragma unroll
      for (int j = 0; j < W; ++j) tile[lane][j] = k[j];
    }
    group.sync();
#pragma unroll
    for (int i = 0; i < W; ++i) t[i] = tile[i][place];
    if (direct && !as_value) space.gather(group, strips + strip, onto);  // on its way while the plan is scaled
    xs[lane] = in_row ? 1 : 0;
    ys[lane] = in_column ? 1 : 0;
    real sums = 0, x = 1, y = 1, last_y = 1;
#pragma unroll
    for (int i = 0; i < W; ++i) sums += t[i];
    group.sync();
    if (inv_p != 1.0) {
      scale_of_errors = (double)biggest;
      tol = pair_tolerance(scale_of_errors, inv_p, accuracy, tightest, loosest);
      units = (float)(65536.0 / tol);
    }
    float error = l1_error(group, in_column ? (float)fabs(sums - pb) : 0.0f, units), before = error;  // over tol
    int done = 1, look = FIRST_LOOK, in_vain = 0;
    bool newton = false;
    Momentum<float> momentum;
    while (error > 1.0f && done < limit) {
      if (done >= look) {
        const float speed = logf(fmaxf(before / error, 1.0f + 1e-6f)) / (float)LOOK;
        newton = newton || logf(error) > FORESEEN * speed;  // once it works, it goes on
        look = done + LOOK;
        before = error;
      }
      if (newton) {  // the plan becomes the kernel, and a Newton step the first scaling
        momentum.stop();
        if (lane < W) {
#pragma unroll
          for (int j = 0; j < W; ++j) tile[lane][j] = k[j] * x * ys[j];
        }
        if (pb > 0) { g += (real)log(y); sums *= y; }
        if (pa > 0) free += (real)log(x);
        group.sync();
        real step = warp_newton<W, G>(tile, space.line, n, m, pa, pb, sums);
#pragma unroll
        for (int i = 0; i < W; ++i) { t[i] = tile[i][place]; k[i] = tile[place][i]; }
        if (lane >= n) {
#pragma unroll
          for (int i = 0; i < W; ++i) k[i] = 0;
        }
        done += 8;
        real trial = 0;
        for (int tries = 0; tries < 6; ++tries) {  // a short step lowers the error: it takes off that part of it
          y = pb > 0 ? (real)exp(step) : 0;
          group.sync();
          ys[lane] = y;
          group.sync();
          x = pa > 0 ? pa * inverse(dot<W>(k, ys)) : 0;
          xs[lane] = x;
          group.sync();
          trial = dot<W>(t, xs);
          error = l1_error(group, in_column ? (float)fabs(trial * y - pb) : 0.0f, units);
          ++done;
          if (error < before) break;
          step *= (real)0.5;
        }
        if (error < before) {
          sums = trial;
        } else {  // back to where it began
          x = y = 1;
          group.sync();
          xs[lane] = in_row ? 1 : 0;
          ys[lane] = in_column ? 1 : 0;
          group.sync();
          error = before;
        }
        newton = error < 0.5f * before;
        look = newton ? done : done + LOOK;
        if (!newton) {
          if (error > 0.9f * before && ++in_vain == 2) break;  // mass has to find a new way: left to the exact potentials
          before = error;
        }
        continue;
      }
      const real next_y = pb > 0 ? momentum.next(y, last_y, pb * inverse(sums)) : 0;
      last_y = y;
      y = next_y;
      ys[lane] = y;
      group.sync();
      x = pa > 0 ? pa * inverse(dot<W>(k, ys)) : 0;
      xs[lane] = x;
      group.sync();
      sums = dot<W>(t, xs);
      const float last = error;
      error = l1_error(group, in_column ? (float)fabs(sums * y - pb) : 0.0f, units);
      momentum.watch(error, last);
      ++done;
    }
    iterations += done;
    const bool finite = group.all(!(pb > 0) || (y > 0 && y < (real)1e37));
    if (keep && in_column)  // what did not converge was no good start
      store[lane] = finite && error <= 1.0f ? (pb > 0 ? g + (real)log(pb * inverse(sums)) : 0) : (real)NOT_A_NUMBER;
    group.sync();
    double from_logs = 0.0;
    if (as_value) {
      if (pa > 0) value += (double)pa * ((double)log(x) + (double)free);
      if (pb > 0) value += (double)pb * ((double)g - (double)log(sums));  // y' = b/sums
      value = fmax(reg * group.sum(value), 0.0);
      from_logs = start_rounding((double)group.largest(pb > 0 ? (real)fabs(g) : (real)0), reg, REAL_EPS);
    } else {
      real inside = 0;
      if (direct) { copied(); group.sync(); }
#pragma unroll
      for (int j = 0; j < W; ++j) inside += k[j] * ys[j] * space.costs[j * W + place];  // k is 0 beyond the supports
      value = (double)group.sum(in_row ? inside * x : 0);
    }
    group.sync();
    const double slack = ((double)error * tol + 2 * W * REAL_EPS) * scale_of_errors, under = as_value ? 0.0 : slack;
    const double missing = root_error(value, slack, under, inv_p);
    if (!(error <= 1.0f) || !finite || !(missing <= accuracy || tol <= tightest)) {
      if (lane == 0) list[atomicAdd(&tally->left, (u64)1)] = p;
      continue;
    }
    worst = fmax(worst, root_error(value, slack + rounding + from_logs, under + rounding + from_logs, inv_p));
    if (lane == 0) out[p] = (real)root(value, inv_p);
  }
  if (lane == 0) {
    raise(&tally->error, worst);
    count_iterations(tally, iterations);
  }
}

#define WARP_SINKHORN(W, G, BLOCKS)                                                                                    \
  extern "C" __global__ void __launch_bounds__(128, BLOCKS)                                                           \
  sinkhorn_warp_##W(PAIR_ARGUMENTS, const u32* extents, const real* cost, const real* strips, const real* gibbs,      \
                    double safe, double reg, i64 as_value, double inv_p, double accuracy, double tightest,            \
                    double loosest, i64 limit, i64 batch, i64 keep, i64 stride, real* kept, u32* list, real* out) {   \
    PAIR_VALUES                                                                                                       \
    if (tally->done) return;                                                                                          \
    warp_pairs<W, G>(q, extents, tally, cost, strips, gibbs, safe, reg, as_value != 0, inv_p, accuracy, tightest,     \
                     loosest, (int)limit, batch, keep != 0, stride, kept, list, out);                                 \
  }
WARP_SINKHORN(12, 16, BY_SIZE(5, 4))
WARP_SINKHORN(20, 32, BY_SIZE(5, 3))
WARP_SINKHORN(32, 32, BY_SIZE(4, 2))
#endif
