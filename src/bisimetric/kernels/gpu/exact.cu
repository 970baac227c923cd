// Exact transport between all pairs of rows, with the tree of each pair kept.

// Any supports, one warp a pair. kept: parents of the nodes [pairs, 2·widest], the first one 0 where there is none.
extern "C" __global__ void __launch_bounds__(128)
exact_pairs(PAIR_ARGUMENTS, const i64* mass, const real* cost, double inv_p, double share, i64 widest, double* work,
            i64 in_shared, i64 keep, unsigned short* kept, real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    const int L = LANES;
    const double top = double_of(tally->top), tol = share * top;
    const i64 warp = global_thread() / L, warps = all_threads() / L;
    const int lane = lane_of(L);
    double* part = WORK_OF_WARP(widest * (widest + 1) + 8 * widest);
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
            part[i * (m | 1) + j] = (double)row[q.indices[to + j]];
            biggest = fmax(biggest, part[i * (m | 1) + j]);
          }
        }
        if (inv_p != 1.0) error = tol * (largest<L>(biggest) / top);
        const WideTree tree = wide_tree(part + widest * (widest + 1), n, m, part, m | 1);
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
      count_iterations(tally, pivots);
    }
  );
}

// A tree of at most N × N nodes in 16 bytes (N = 8) or 4 (N = 4): its cells i·N + j, from the root outwards, so that each
// cell joins one new node to those before it.
template <int N> struct Code;
template <> struct alignas(16) Code<8> {
  u64 low, high;
  DEVICE bool filled() const { return high >> 63; }
  DEVICE void clear() { low = 0; high = 1ull << 63; }
  DEVICE int cell(int k) const { return (int)((k < 10 ? low >> 6 * k : high >> 6 * (k - 10)) & 63); }
  DEVICE void put(int k, int cell) {
    if (k < 10) low |= (u64)cell << 6 * k; else high |= (u64)cell << 6 * (k - 10);
  }
};
template <> struct Code<4> {
  u32 cells;
  DEVICE bool filled() const { return cells >> 31; }
  DEVICE void clear() { cells = 1u << 31; }
  DEVICE int cell(int k) const { return (int)(cells >> 4 * k & 15); }
  DEVICE void put(int k, int cell) { cells |= (u32)cell << 4 * k; }
};

template <class T> struct SlotMasses {  // masses of one row, transposed
  const T* at; i64 stride;
  DEVICE i64 operator[](int i) const { return (i64)at[i * stride]; }
};

typedef unsigned char u8;
template <class T> struct MassOf;  // integers that hold the lifted masses
template <> struct MassOf<float> { typedef int type; enum { shift = 5, bits = 25 }; };
template <> struct MassOf<double> { typedef i64 type; enum { shift = 12, bits = 48 }; };

// Supports of at most N states, one thread a pair; its costs, potentials, flows and links in columns of shared memory.
template <int N, int THREADS>
DEVICE void small_exact(Tally* tally, const u32* slots, const typename MassOf<real>::type* slot_mass, const int* sizes,
                        i64 n_members, i64 a0, i64 first, i64 n_states, const real* strips, double inv_p, double share,
                        bool keep, Code<N>* kept, real* out, double& worst, u64& pivots) {
  typedef typename MassOf<real>::type Mass;
  constexpr int SHIFT = MassOf<real>::shift;
  const i64 row = blockIdx.y, a = a0 + row, b = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= n_members || b < a + first) return;
  const double top = double_of(tally->top);
  if (top == 0.0) { out[row * n_members + b] = 0; return; }
  const int n = sizes[a], m = sizes[b], edges = n + m - 1, me = threadIdx.x;
  real* costs = (real*)pool + me;
  real* pots = (real*)pool + N * N * THREADS + me;
  Mass* flows = (Mass*)((real*)pool + (N * N + 2 * N) * THREADS) + me;
  u8* links = (u8*)((Mass*)((real*)pool + (N * N + 2 * N) * THREADS) + 2 * N * THREADS) + me;
  typedef Tree<Column<real, THREADS>, Column<real, THREADS>, Column<Mass, THREADS>, Column<u8, THREADS>, SHIFT> Small;
  const Small t = {{costs}, {pots}, {flows}, {links}, {links + 2 * N * THREADS},
                   {links + 4 * N * THREADS}, n, m, N};
  const real* strip = strips + row * n_states * N;
  double biggest = 0.0;
  for (int j = 0; j < N; ++j) {
    const Packed<real, N> column = *(const Packed<real, N>*)(strip + (i64)slots[j * n_members + b] * N);
    for (int i = 0; i < N; ++i) {
      t.cost[i * N + j] = column.at[i];
      if (inv_p != 1.0 && i < n && j < m) biggest = fmax(biggest, (double)column.at[i]);
    }
  }
  const double tol = inv_p == 1.0 ? share * top : share * biggest;
  const SlotMasses<Mass> row_mass = {slot_mass + a, n_members}, column_mass = {slot_mass + b, n_members};
  Code<N>* store = kept + (a * (n_members - first) - a * (a - 1) / 2 + b - a - first);
  Code<N> code;
  code.clear();
  if (keep) code = *store;
  int more = -1;
  if (keep && code.filled()) {
    for (int i = 0; i < n; ++i) t.flow[i] = (Mass)lifted_row<SHIFT>(row_mass[i]);
    for (int j = 0; j < m; ++j) t.flow[n + j] = (Mass)lifted_column<SHIFT>(column_mass[j], j == m - 1, n);
    u32 known = 1;
    t.pot[0] = 0;
    for (int k = 0; k < edges; ++k) {
      const int cell = code.cell(k), i = cell / N, j = n + cell % N;
      const bool down = known >> i & 1;  // from the row to the column
      const int from = down ? i : j, to = down ? j : i;
      t.parent[to] = (u8)from;
      t.pot[to] = t.cost[cell] - t.pot[from];
      known |= 1u << to;
    }
    bool feasible = true;
    for (int k = edges - 1; k >= 0; --k) {  // the new node of a cell is the one that no later cell leads from
      const int cell = code.cell(k), i = cell / N, j = n + cell % N;
      const int to = i != 0 && t.parent[i] == j ? i : j, from = to == i ? j : i;
      const Mass flow = t.flow[to];
      feasible &= flow >= 0;
      t.flow[from] -= flow;
    }
    if (feasible) more = improve<1>(t, tol, false);
  }
  if (more != 0) {
    if (more < 0) more = 1 + solve<1, SHIFT>(t, row_mass, column_mass, false, tol);
    code.clear();
    for (int k = 0, level = 1; k < edges; ++level)
      for (int v = 1; v < n + m; ++v)
        if (t.depth[v] == level) code.put(k++, v < n ? v * N + t.parent[v] - n : t.parent[v] * N + v - n);
    if (keep) *store = code;
  }
  pivots += more;
  const double value = tree_value<1, SHIFT>(t, 1.0 / (double)((i64)1 << MassOf<real>::bits));
  const double answer = root(value, inv_p);
  worst = inv_p == 1.0 ? tol : answer - root(fmax(value - tol, 0.0), inv_p);
  out[row * n_members + b] = (real)answer;
}

#define SMALL_EXACT(N, THREADS)                                                                                       \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                               \
  exact_small_##N(Tally* tally, const u32* slots, const MassOf<real>::type* slot_mass, const int* sizes,              \
                  i64 n_members, i64 a0, i64 first, i64 n_states, const real* strips, double inv_p, double share,     \
                  i64 keep, Code<N>* kept, real* out) {                                                               \
    EACH_THREAD(                                                                                                      \
      if (tally->done) return;                                                                                        \
      if (((i64)blockIdx.x + 1) * blockDim.x <= a0 + blockIdx.y + first) return;                                      \
      double worst = 0.0;                                                                                             \
      u64 pivots = 0;                                                                                                 \
      small_exact<N, THREADS>(tally, slots, slot_mass, sizes, n_members, a0, first, n_states, strips, inv_p, share,   \
                              keep != 0, kept, out, worst, pivots);                                                   \
      worst = largest<LANES>(worst);                                                                                  \
      pivots = sum<LANES>(pivots);                                                                                    \
      if (lane_of(LANES) == 0) {                                                                                      \
        raise(&tally->error, worst);                                                                                  \
        count_iterations(tally, pivots);                                                            \
      }                                                                                                               \
    );                                                                                                                \
  }
SMALL_EXACT(4, 128)
#define EIGHT (sizeof(real) == 4 ? 128 : 64)
SMALL_EXACT(8, EIGHT)
