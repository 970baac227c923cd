// Exact transport between all pairs of rows with up to 32 successors, several lanes a pair, with the tree of each pair kept.

typedef unsigned char u8;
typedef unsigned short u16;
constexpr double UNIT = 1.0 / 281474976710656.0;  // of masses
template <bool LONG> struct SetOf { typedef u32 type; };
template <> struct SetOf<true> { typedef u64 type; };

// A tree on N rows (nodes 0 … N − 1) and N columns (N … 2N − 1) in shared memory, for P lanes; row 0 is the root.
//
// As in `SmallTree`, a node is known by the set of arcs on its way to the root, and arcs by the node that they joined to
// the tree at first. Here lanes also set up the tree together, from the parents of its nodes: ways and potentials by
// doubling, flows as the mass of the nodes that have the arc on their way. Arc 0 does not exist, nor do those of nodes
// that fill up a side; these have potential −∞. A cell is column · 256 + row.
template <int N, int P> struct LaneTree {
  typedef typename SetOf<(N > 16)>::type Set;
  enum { NODES = 2 * N, K = NODES / P, COLUMNS = (N + P - 1) / P, SHIFT = WIDE_SHIFT };
  enum { E = 16 / sizeof(real), CHUNKS = N / E, STRIDE = N % 32 ? N : N + E };  // columns start in different banks
  // Lengths of a pair's arrays: what the lanes of a warp read at once is in different banks.
  enum { COSTS = N * STRIDE, POTS = NODES + 2, ARCS = NODES + (N == 12 ? 4 : N == 20 ? 0 : 2) };
  enum { BYTES = COSTS * sizeof(real) + 8 * POTS + ARCS * (8 + sizeof(Set)) + 2 * NODES };
  enum { FITTING = (227 << 10) / (4 * LANES / P * BYTES + 1024), BLOCKS = FITTING < 8 ? FITTING : 8 };  // that share memory
  static_assert(K * P == NODES && CHUNKS * E == N, "lanes share nodes evenly, and a column is made of 16 bytes");
  real* cost;   // of column · STRIDE + row
  double* pot;
  i64* flow;    // of arcs
  Set* way;     // of nodes: the set of arcs to the root
  u16* cell;    // of arcs
  Set low_rows;  // arcs whose lower node is a row
  int n, m, part;

  DEVICE LaneTree(int n, int m) : low_rows(((Set)1 << N) - 1), n(n), m(m), part(threadIdx.x % P) {
    constexpr int PAIRS = 4 * LANES / P;
    const int pair = threadIdx.x / P;
    real* costs = (real*)pool;
    double* pots = (double*)(costs + PAIRS * COSTS);
    i64* flows = (i64*)(pots + PAIRS * POTS);
    Set* ways = (Set*)(flows + PAIRS * ARCS);
    cost = costs + pair * COSTS;
    pot = pots + pair * POTS;
    flow = flows + pair * ARCS;
    way = ways + pair * ARCS;
    cell = (u16*)(ways + PAIRS * ARCS) + pair * NODES;
  }

  DEVICE int node(int k) const { return part + P * k; }  // the k-th of a lane
  DEVICE bool filled(int v) const { return v < N ? v < n : v - N < m; }
  DEVICE double cost_of(int c) const { return (double)cost[(c >> 8) * STRIDE + (c & 255)]; }

  // Costs of the pair from the strip of its row, past the registers.
  DEVICE void gather(const real* strip, const u32* slots, i64 stride, i64 b) const {
    for (int k = part; k < m * CHUNKS; k += P) {
      const int j = k / CHUNKS, h = k % CHUNKS;
      copy_16<(P > 1)>(cost + j * STRIDE + h * E, strip + (i64)slots[j * stride + b] * N + h * E);
    }
  }

  // Lifted masses of a lane's nodes where flows will be, those of columns times `sign`.
  DEVICE void put_masses(const i64* masses, i64 stride, i64 a, i64 b, int sign) const {
    for (int k = 0; k < K; ++k) {
      const int v = node(k), j = v - N;
      const i64 mass = filled(v) ? masses[(v < N ? v : j) * stride + (v < N ? a : b)] : 0;
      flow[v] = !filled(v) ? 0 : v < N ? lifted_row<SHIFT>(mass) : sign * lifted_column<SHIFT>(mass, j == m - 1, n);
    }
  }

  // The parents of a lane's nodes in a feasible tree by the row-minimum rule, from the last row to the first. Each arc
  // ends a row or a column, which hangs on the other one. All lanes come here; only where `wanted` is anything done.
  DEVICE void new_tree(bool wanted, const i64* masses, i64 stride, i64 a, i64 b, int (&parent)[K]) const {
    if (wanted) {
      put_masses(masses, stride, a, b, 1);
      for (int k = 0; k < K; ++k) way[node(k)] = 0;  // parents, here
    }
    sync<LANES>();
    u32 open = ~0u >> (32 - m);
    int i = n - 1;
    i64 here = flow[i];
    for (int left = n + m - 1; any_lane(wanted && left > 0); --left) {
      const bool busy = wanted && left > 0;
      double low = INFINITE;
      int best = N;
      for (int c = 0; c < COLUMNS; ++c) {
        const int j = part + P * c;
        if (j >= m || !(open >> j & 1)) continue;
        const double x = (double)cost[j * STRIDE + i];
        if (best == N || x < low) { low = x; best = j; }
      }
      for (int k = 1; k < P; k *= 2) {
        const double other = across(low, k);
        const int there = across(best, k);
        if (there < N && (best == N || other < low || (other == low && there < best))) { low = other; best = there; }
      }
      const i64 there = busy ? flow[N + best] : 0;
      const bool row_ends = i > 0 && (here <= there || !(open & (open - 1)));
      sync<LANES>();
      if (busy && part == 0) {
        if (row_ends) { flow[N + best] = there - here; way[i] = (Set)(N + best); }
        else way[N + best] = (Set)i;
      }
      if (busy && row_ends) here = flow[--i];
      else if (busy) { here -= there; open &= ~(1u << best); }
      sync<LANES>();
    }
    if (wanted)
      for (int k = 0; k < K; ++k) parent[k] = (int)way[node(k)];
    sync<LANES>();
  }

  // Ways and potentials of the tree with these parents. Each round doubles how far a node has seen.
  DEVICE void climb(const int (&parent)[K]) const {
    int above[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int v = node(k);
      const bool arc = v > 0 && filled(v);
      above[k] = arc ? parent[k] : 0;
      const int c = v < N ? (above[k] - N) << 8 | v : (v - N) << 8 | above[k];
      cell[v] = (u16)(arc ? c : 0);
      way[v] = arc ? (Set)1 << v : 0;
      pot[v] = arc ? cost_of(c) : 0.0;
      flow[v] = above[k];
    }
    sync<LANES>();
    for (int round = 0; round < 6; ++round) {  // 2⁶ nodes at most
      bool on_way = false;
      for (int k = 0; k < K; ++k) on_way |= above[k] != 0;
      if (!any_lane(on_way)) break;
      Set ways[K];
      double pots[K];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        ways[k] = way[above[k]];
        pots[k] = pot[above[k]];
        above[k] = (int)flow[above[k]];
      }
      sync<LANES>();
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int v = node(k);
        way[v] |= ways[k];
        pot[v] += round == 0 ? -pots[k] : pots[k];  // signs alternate along the way
        flow[v] = above[k];
      }
      sync<LANES>();
    }
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (!filled(node(k))) pot[node(k)] = -INFINITE;
  }

  // Flows of the arcs, from the ways; returns whether none is negative, for all lanes alike.
  DEVICE bool set_flows(const i64* masses, i64 stride, i64 a, i64 b) const {
    put_masses(masses, stride, a, b, -1);
    sync<LANES>();
    i64 beyond[K];
#pragma unroll
    for (int k = 0; k < K; ++k) beyond[k] = 0;
#pragma unroll 4
    for (int v = 0; v < NODES; ++v) {
      const Set mine = way[v] >> part;
      const i64 mass = flow[v];
#pragma unroll
      for (int k = 0; k < K; ++k) beyond[k] += mine >> P * k & 1 ? mass : 0;
    }
    sync<LANES>();
    int negative = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const i64 through = node(k) < N ? beyond[k] : -beyond[k];
      flow[node(k)] = through;
      negative |= through < 0;
    }
    sync<LANES>();
    return sum_of_parts<P>(negative) == 0;
  }

  // The row of least reduced cost in each of a lane's columns.
  DEVICE void price(int (&rows)[COLUMNS]) const {
    double low[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) { low[c] = INFINITE; rows[c] = 0; }
#pragma unroll
    for (int h = 0; h < CHUNKS; ++h) {
      double u[E];
#pragma unroll
      for (int e = 0; e < E; ++e) u[e] = pot[h * E + e];
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        const int j = part + P * c;
        const Packed<real, E> costs = *(const Packed<real, E>*)(cost + (j < N ? j : 0) * STRIDE + h * E);
#pragma unroll
        for (int e = 0; e < E; ++e) {
          const double reduced = (double)costs.at[e] - u[e];
          if (reduced < low[c]) { low[c] = reduced; rows[c] = h * E + e; }
        }
      }
    }
  }

  // The cell of least reduced cost among those, for all lanes alike, and −1 where none is below −tol. After a pivot they
  // are still good, so that many pivots need few looks at all cells.
  DEVICE int best_cell(const int (&rows)[COLUMNS], double tol, double& least) const {
    double low = -tol;
    int best = -1;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int j = part + P * c, here = (j < N ? j : 0) << 8 | rows[c];
      const double reduced = j < m ? cost_of(here) - pot[rows[c]] - pot[N + j] : INFINITE;
      if (reduced < low) { low = reduced; best = here; }
    }
    for (int k = 1; k < P; k *= 2) {
      const double other = across(low, k);
      const int there = across(best, k);
      if (other < low || (other == low && there > best)) { low = other; best = there; }
    }
    least = low;
    return best;
  }

  // Let a cell enter and the arc of least flow that loses some leave. All lanes come here; only where `wanted` is
  // anything done.
  DEVICE void pivot(bool wanted, int entering, double reduced) {
    const int row = wanted ? entering & 255 : 0, column = N + (wanted ? entering >> 8 : 0);
    const Set from_row = way[row], from_column = way[column], cycle = from_row ^ from_column;
    const Set losing = cycle & ((from_row & low_rows) | (from_column & ~low_rows));
    i64 old[K], theta = 0;
    int leaving = NODES;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      old[k] = flow[node(k)];
      if ((losing >> node(k) & 1) && (leaving == NODES || old[k] < theta)) { theta = old[k]; leaving = node(k); }
    }
    for (int k = 1; k < P; k *= 2) {
      const i64 other = across(theta, k);
      const int there = across(leaving, k);
      if (there < NODES && (leaving == NODES || other < theta || (other == theta && there < leaving))) {
        theta = other;
        leaving = there;
      }
    }
    if (leaving == NODES) leaving = 0;  // it is there wherever it is wanted
    const bool row_below = from_row >> leaving & 1;  // the part that is cut off has the row
    const int cut = cell[leaving], end = low_rows >> leaving & 1 ? cut & 255 : N + (cut >> 8);
    const Set turned = (row_below ? from_row : from_column) ^ way[end], out = (Set)1 << leaving;
    const double shift = row_below ? reduced : -reduced;
    sync<LANES>();
    if (wanted) {
      low_rows = (low_rows ^ turned) & ~out;
      if (row_below) low_rows |= out;
      if (part == 0) cell[leaving] = (u16)entering;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int v = node(k);
        if (cycle >> v & 1) flow[v] = v == leaving ? theta : old[k] + (losing >> v & 1 ? -theta : theta);
        const Set mine = way[v];
        if (mine >> leaving & 1) {
          way[v] = mine ^ cycle ^ out;
          pot[v] += v < N ? shift : -shift;
        }
      }
    }
    sync<LANES>();
  }

  // Σ flow · cost of the true masses, for all lanes alike.
  DEVICE double value() const {
    double total = 0.0;
    for (int k = 0; k < K; ++k) {
      const i64 units = (flow[node(k)] + ((i64)1 << (SHIFT - 1))) >> SHIFT;
      if (units > 0) total += (double)units * cost_of(cell[node(k)]);
    }
    return sum_of_parts<P>(total) * UNIT;
  }

  DEVICE double largest_cost() const {
    double most = 0.0;
    for (int j = part; j < m; j += P)
      for (int i = 0; i < n; ++i) most = fmax(most, (double)cost[j * STRIDE + i]);
    for (int k = 1; k < P; k *= 2) most = fmax(most, across(most, k));
    return most;
  }

  // The tree in 2N bytes: of each node the place of its parent on the other side, and 1 for the root.
  DEVICE void load(const u8* kept, int (&parent)[K]) const {
    for (int k = 0; k < K; ++k) parent[k] = kept[node(k)] + (node(k) < N ? N : 0);
  }
  DEVICE void store(u8* kept) const {
    for (int k = 0; k < K; ++k) {
      const int s = node(k), i = cell[s] & 255, j = cell[s] >> 8;
      if (s == 0) kept[0] = 1;
      else if (filled(s)) kept[low_rows >> s & 1 ? i : N + j] = (u8)(low_rows >> s & 1 ? j : i);
    }
  }
};

// Supports of at most N states, P neighbouring lanes a pair. Lanes of a warp go through all loops together.
template <int N, int P>
DEVICE void wide_exact(Tally* tally, const Pairs& q, const u32* slots, const i64* masses, const int* sizes,
                       const real* strips, double inv_p, double share, i64 keep, u8* kept, real* out, double& worst,
                       u32& pivots) {
  typedef LaneTree<N, P> Tree;
  const Reach& reach = q.reach;
  const i64 row = blockIdx.y, a = q.a0 + row, members = reach.members;
  i64 b = reach.corner + (i64)blockIdx.x * (4 * LANES / P) + threadIdx.x / P;
  const bool inside = b < members && b >= reach.begin(a);
  if (!any_lane(inside)) return;
  if (!inside) b = b < members ? reach.begin(a) : members - 1;  // some pair, to go along
  real* place = out + row * reach.width() + b - reach.corner;
  const double top = double_of(tally->top);
  Tree t(sizes[a], sizes[b]);
  const bool leads = t.part == 0;
  if (top == 0.0) {
    if (inside && leads) *place = 0;
    return;
  }
  t.gather(strips + row * q.n_states * N, slots, members, b);
  u8* mine = kept + (keep ? q.reach.number(a, b) * 2 * N : 0);
  const bool cold = !keep || mine[0] == 0;
  int parent[Tree::K];
  if (!cold) t.load(mine, parent);
  copied();
  sync<LANES>();
  double tol = share * top, biggest = top;
  if (inv_p != 1.0) {
    biggest = t.largest_cost();
    tol = share * biggest;
  }
  if (any_lane(cold)) t.new_tree(cold, masses, members, a, b, parent);
  t.climb(parent);
  const bool anew = !t.set_flows(masses, members, a, b);  // a tree of other masses may be infeasible, a new one is not
  if (any_lane(anew)) {
    t.new_tree(anew, masses, members, a, b, parent);
    t.climb(parent);
    t.set_flows(masses, members, a, b);
  }
  constexpr int LIMIT = 200 * N;  // far above what is seen; the answer is feasible anyway
  constexpr int MOST = N > 12 ? LIMIT : 1;  // pivots from one look at all cells
  int rows[Tree::COLUMNS], more = 0, steps = 0, priced = keep == FROZEN ? 0 : -1;
  double reduced = 0.0;
  while (steps < LIMIT && priced < steps) {
    t.price(rows);
    for (priced = steps; steps < LIMIT && steps < priced + MOST; ++steps) {
      const int entering = t.best_cell(rows, tol, reduced);
      const bool wanted = inside && entering >= 0;
      if (!any_lane(wanted)) break;
      t.pivot(wanted, entering, reduced);
      more += wanted;
    }
  }
  if (inv_p != 1.0 && keep != FROZEN) {  // what is left of the pricing's tolerance
    if (priced < steps) t.price(rows);
    t.best_cell(rows, 0.0, reduced);
  }
  const double value = t.value();
  if (!inside) return;
  if (keep && (cold || anew || more)) t.store(mine);
  if (!leads) return;
  pivots = more;
  // Masses are rounded to units, and potentials and the value are sums along the tree.
  double above = (t.n + t.m) * (UNIT + 4.0 * EPS) * biggest;
  double below = above + (inv_p == 1.0 ? tol : fmax(-reduced, 0.0));
  if (a == b) above = below = (t.n + t.m + 4) * EPS * value;
  else if (inv_p != 1.0 && value == 0.0) {
    const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
    if (same_rows<1>(q, lo, t.n, to, t.m)) above = below = 0.0;
  }
  worst = root_error(value, above, below, inv_p);
  *place = (real)root(value, inv_p);
}

#define WIDE_EXACT(N, P)                                                                                             \
  extern "C" __global__ void __launch_bounds__(4 * LANES, (LaneTree<N, (P)>::BLOCKS))                               \
  exact_wide_##N(PAIR_ARGUMENTS, const u32* slots, const i64* masses, const int* sizes, const real* strips,          \
                 double inv_p, double share, i64 keep, u8* kept, real* out) {                                        \
    EACH_THREAD(                                                                                                     \
      PAIR_VALUES                                                                                                    \
      if (tally->done) return;                                                                                       \
      if (corner + ((i64)blockIdx.x + 1) * (blockDim.x / (P)) <= q.reach.begin(a0 + blockIdx.y)) return;             \
      double worst = 0.0;                                                                                            \
      u32 pivots = 0;                                                                                                \
      wide_exact<N, (P)>(tally, q, slots, masses, sizes, strips, inv_p, share, keep, kept, out, worst, pivots);      \
      worst = largest<LANES>(worst);                                                                                 \
      pivots = sum<LANES>(pivots);                                                                                   \
      if (lane_of(LANES) == 0) {                                                                                     \
        raise(&tally->error, worst);                                                                                 \
        count_iterations(tally, pivots);                                                                             \
      }                                                                                                              \
    );                                                                                                               \
  }
WIDE_EXACT(12, PARTS(EXACT_PARTS_12))
WIDE_EXACT(20, PARTS(EXACT_PARTS_20))
WIDE_EXACT(32, PARTS(EXACT_PARTS_32))
