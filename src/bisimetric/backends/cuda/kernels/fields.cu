// Passes over the distances: ground cost, comparison of choices, the new distances and what changed.

// cost = (d/unit)^p and, where reg > 0, gibbs = exp(−cost/reg).
extern "C" __global__ void power_max(Tally* tally, const real* d, i64 count, double p, double unit, double reg,
                                     real* cost, real* gibbs) {
  EACH_THREAD(
    if (tally->done) return;
    double top = 0.0;
    for (i64 k = global_thread(); k < count; k += all_threads()) {
      double x = (double)d[k] / unit;
      if (p == 2.0) x *= x;
      else if (p != 1.0) x = pow(x, p);
      cost[k] = (real)x;
      if (reg > 0.0) gibbs[k] = (real)exp((real)(-x / reg));
      top = fmax(top, x);
    }
    top = largest<LANES>(top);
    if (lane_of(LANES) == 0) raise(&tally->top, top);
  );
}

// A row of the block (blockIdx.y) to the right of the diagonal, and 0 on it where that has no pair of its own. Between two
// models there is no diagonal (square = 0), and n are the states of the second.
template <class New>
DEVICE void write_row(Tally* tally, i64 s0, i64 n, i64 square, i64 first, real* d, New next) {
  const i64 row = blockIdx.y, s = s0 + row;
  double rise = 0.0, fall = 0.0;
  if (row == 0 && global_thread() == 0) { tally->slow += tally->left; tally->left = tally->next = 0; }
  for (i64 t = (square ? s : 0) + global_thread(); t < n; t += all_threads()) {
    if (square && t < s + first) {
      d[s * n + t] = 0;
      continue;
    }
    const real x = next(row * n + t, s, t);
    const double change = (double)x - (double)d[s * n + t];
    rise = fmax(rise, change);
    fall = fmax(fall, -change);
    d[s * n + t] = x;
  }
  raise_by_block(&tally->rise, rise);
  raise_by_block(&tally->fall, fall);
}

// d = the distances of rows s0 … of a chain from their transports [rows, n], to the right of the diagonal; the rewards of
// a second model begin at the corner.
extern "C" __global__ void write_chain(Tally* tally, const real* transports, i64 s0, i64 n, i64 first, i64 corner,
                                       const double* rewards, double c_R, double c_T, real* d) {
  EACH_THREAD(
    if (tally->done) return;
    write_row(tally, s0, n, corner == 0, first, d, [&](i64 k, i64 s, i64 t) {
      return (real)(c_R * fabs(rewards[s] - rewards[corner + t]) + c_T * (double)transports[k]);
    });
  );
}

// The left of the diagonal from its right, once a sweep, by tiles of 32 × 32: whole lines are read and written.
extern "C" __global__ void mirror(const Tally* tally, i64 n, real* d) {
#ifdef __CUDACC__
  __shared__ real tile[32][33];
  const i64 above = (i64)blockIdx.y * 32, left = (i64)blockIdx.x * 32;
  if (tally->done || above > left) return;
  const int x = threadIdx.x & 31, y = threadIdx.x / 32;
  for (int k = y; k < 32; k += 8)
    if (above + k < n && left + x < n) tile[k][x] = d[(above + k) * n + left + x];
  __syncthreads();
  for (int k = y; k < 32; k += 8)
    if (above + x < left + k && left + k < n) d[(left + k) * n + above + x] = tile[x][k];
#else
  if (tally->done) return;
  for (i64 s = 0; s < n; ++s)
    for (i64 t = s + 1; t < n; ++t) d[t * n + s] = d[s * n + t];
#endif
}

extern "C" __global__ void start_rows(const i64* apart, const i64* columns_apart, double largest_distance, i64 s0, i64 rows,
                                      i64 n, real* acc) {
  EACH_THREAD(
    for (i64 k = global_thread(); k < rows * n; k += all_threads())
      acc[k] = (real)(apart[s0 + k / n] != columns_apart[k % n] ? largest_distance : 0.0);
  );
}

extern "C" __global__ void raise_to(Tally* tally, const real* block, const i64* members, i64 n_members, i64 first, i64 corner,
                                    const i64* states, const double* rewards, i64 a0, i64 rows, i64 s0, double c_R,
                                    double c_T, i64 n, real* acc) {
  EACH_THREAD(
    const Reach reach = {n_members, first, corner};
    if (global_thread() == 0) { tally->slow += tally->left; tally->left = tally->next = 0; }  // the next block makes its own list
    for (i64 k = global_thread(); k < rows * reach.width(); k += all_threads()) {
      const i64 a = a0 + k / reach.width(), b = corner + k % reach.width();
      if (b < reach.begin(a)) continue;
      const i64 x = members[a], y = members[b];
      real* at = acc + (states[x] - s0) * n + states[y];
      *at = (real)fmax((double)*at, c_R * fabs(rewards[x] - rewards[y]) + c_T * (double)block[k]);
    }
  );
}

// Hausdorff distance of the choices of s and t; states whose labels differ are as far apart as can be. The choices of t
// are those of a second model from the corner on, which columns of the block begin with.
extern "C" __global__ void hausdorff(Tally* tally, const real* block, const i64* choice_ptr, const i64* column_ptr,
                                     const double* rewards, const i64* apart, const i64* columns_apart,
                                     double largest_distance, i64 s0, i64 rows, i64 first, i64 corner, double c_R,
                                     double c_T, i64 n, i64 width, real* acc) {
  EACH_THREAD(
    if (global_thread() == 0) { tally->slow += tally->left; tally->left = tally->next = 0; }
    for (i64 k = global_thread(); k < rows * n; k += all_threads()) {
      const i64 s = s0 + k / n, t = k % n, top = choice_ptr[s0];
      if (corner == 0 && t < s + first) continue;
      const i64* ends[2] = {choice_ptr + s, column_ptr + t};
      double worst = 0.0;
      for (int side = 0; side < 2; ++side) {
        const i64* one = ends[side];
        const i64* other = ends[1 - side];
        for (i64 x = one[0]; x < one[1]; ++x) {
          double low = INFINITE;
          for (i64 y = other[0]; y < other[1]; ++y) {
            const i64 i = x < y ? x : y, j = x < y ? y : x;
            const double w = (double)block[(i - top) * width + j - corner];
            low = fmin(low, c_R * fabs(rewards[x] - rewards[y]) + c_T * w);
          }
          worst = fmax(worst, low);
        }
      }
      acc[k] = (real)(apart[s] != columns_apart[t] ? largest_distance : worst);
    }
  );
}

extern "C" __global__ void write_rows(Tally* tally, const real* acc, i64 s0, i64 n, i64 first, i64 square, real* d) {
  EACH_THREAD(
    if (tally->done) return;
    write_row(tally, s0, n, square, first, d, [&](i64 k, i64, i64) { return acc[k]; });
  );
}

// d += by where it is positive, and 0 where that is negative.
extern "C" __global__ void shift_positive(i64 count, double by, real* d) {
  EACH_THREAD(
    for (i64 k = global_thread(); k < count; k += all_threads())
      if (d[k] > 0) d[k] = (real)fmax((double)d[k] + by, 0.0);
  );
}

// Close a sweep: what it reported becomes readable; where nothing changed by more than `stop`, later sweeps do nothing.
extern "C" __global__ void end_sweep(Tally* tally, double stop) {
  EACH_THREAD(
    if (global_thread() != 0 || tally->done) return;
    const double rise = double_of(tally->rise), fall = double_of(tally->fall);
    tally->change = bits_of(fmax(rise, fall));
    if (tally->top > tally->last_top) tally->last_top = tally->top;  // the largest of all sweeps, as bits are ordered
    if (tally->error > tally->last_error) tally->last_error = tally->error;
    tally->last_rise = tally->rise;
    tally->last_fall = tally->fall;
    tally->top = tally->rise = tally->fall = tally->error = 0;
    tally->sweeps += 1;
    if (fmax(rise, fall) <= stop) tally->done = 1;
  );
}

// mean[a − a0, t] = Σ_i a_i C[i, t], and then the expected distance under independence.
extern "C" __global__ void mean_costs(PAIR_ARGUMENTS, const real* cost, real* mean) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    for (i64 k = global_thread(); k < q.rows * q.n_states; k += all_threads()) {
      const i64 row = q.members[q.a0 + k / q.n_states], t = k % q.n_states;
      double total = 0.0;
      for (i64 i = q.indptr[row]; i < q.indptr[row + 1]; ++i) total += q.probs[i] * (double)cost[q.indices[i] * q.n_states + t];
      mean[k] = (real)total;
    }
  );
}

extern "C" __global__ void independent_pairs(PAIR_ARGUMENTS, const real* mean, double inv_p, real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    for (i64 k = global_thread(); k < q.count(); k += all_threads()) {
      const i64 a = q.row(k), b = q.column(k);
      if (b < q.reach.begin(a)) continue;
      const i64 row = q.members[b];
      const real* means = mean + (a - q.a0) * q.n_states;
      double total = 0.0;
      for (i64 j = q.indptr[row]; j < q.indptr[row + 1]; ++j) total += q.probs[j] * (double)means[q.indices[j]];
      out[k] = (real)root(total, inv_p);
    }
  );
}

// Probabilities as integers that add up to `units` in each row; what rounding leaves goes to the first largest.
extern "C" __global__ void integer_masses(const i64* indptr, const double* probs, i64 rows, i64 units, i64* mass) {
  EACH_THREAD(
    for (i64 row = global_thread(); row < rows; row += all_threads()) {
      i64 left = units; i64 top = indptr[row];
      for (i64 k = indptr[row]; k < indptr[row + 1]; ++k) {
        mass[k] = (i64)rint(probs[k] * (double)units);
        left -= mass[k];
        if (mass[k] > mass[top]) top = k;
      }
      mass[top] += left;
    }
  );
}

// Forget what was kept of pairs of which one row has other successors than before.
extern "C" __global__ void forget(i64 n_members, i64 first, i64 corner, const unsigned char* same, i64 pairs, i64 bytes,
                                  unsigned char* kept, unsigned char cold) {
  EACH_THREAD(
    const Reach reach = {n_members, first, corner};
    for (i64 k = global_thread(); k < (corner ? corner : n_members) * reach.width(); k += all_threads()) {
      const i64 a = k / reach.width(), b = corner + k % reach.width();
      if (b < reach.begin(a) || (same[a] && same[b])) continue;
      const i64 pair = reach.number(a, b);
      for (i64 x = 0; x < bytes && pair < pairs; ++x) kept[pair * bytes + x] = cold;
    }
  );
}

// The strips of rows a0 … [rows, S, N]; see strips.cuh. One row of the grid a row, and after `rows` of them those of
// another matrix. A warp turns the costs to its states in shared memory, so that whole lines are read and written.
template <int N>
DEVICE void make_strip(const u32* slots, i64 n_members, i64 a0, i64 rows, i64 n_states, const real* cost,
                       const real* other, real* strips) {
  const i64 row = blockIdx.y, a = a0 + row % rows;
  const int lane = lane_of(LANES);
  const real* source[N];
  for (int i = 0; i < N; ++i) source[i] = (row < rows ? cost : other) + slots[i * n_members + a] * n_states;
  real* tile = (real*)pool + threadIdx.x / LANES * N * (LANES + 1);
  real* strip = strips + row * n_states * N;
  for (i64 from = global_thread() - lane; from < n_states; from += all_threads()) {
    const i64 t = from + lane, count = (n_states - from < LANES ? n_states - from : LANES) * N;
#pragma unroll
    for (int i = 0; i < N; ++i) tile[i * (LANES + 1) + lane] = source[i][t < n_states ? t : 0];
    sync<LANES>();
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int place = k * LANES + lane;
      if (place < count) strip[from * N + place] = tile[place % N * (LANES + 1) + place / N];
    }
    sync<LANES>();
  }
}

#define MAKE_STRIPS(N)                                                                                              \
  extern "C" __global__ void make_strips_##N(const Tally* tally, const u32* slots, i64 n_members, i64 a0, i64 rows, \
                                             i64 n_states, const real* cost, const real* other, real* strips) {     \
    EACH_THREAD(                                                                                                    \
      if (tally->done) return;                                                                                      \
      make_strip<N>(slots, n_members, a0, rows, n_states, cost, other, strips);                                     \
    );                                                                                                              \
  }
MAKE_STRIPS(4)
MAKE_STRIPS(8)
MAKE_STRIPS(12)
MAKE_STRIPS(20)
MAKE_STRIPS(32)
