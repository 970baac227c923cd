// Exact transport between all pairs of rows, with the tree of each pair kept.

// Any supports, one warp a pair. kept: parents of the nodes [pairs, 2·widest], the first one 0 where there is none.
extern "C" __global__ void __launch_bounds__(128)
exact_pairs(PAIR_ARGUMENTS, const i64* mass, const real* cost, double inv_p, double share, i64 widest, double* work,
            i64 in_shared, i64 keep, unsigned short* kept, real* out) {
  EACH_THREAD(
    PAIR_VALUES
    if (tally->done) return;
    const int L = LANES;
    const double top = double_of(tally->top), tol = share * top, unit = 1.0 / 281474976710656.0;
    const i64 warp = global_thread() / L, warps = all_threads() / L;
    const int lane = lane_of(L);
    double* part = WORK_OF_WARP(widest * (widest + 1) + 8 * widest);
    double worst = 0.0;
    u64 pivots = 0;
    for (i64 p = warp; p < q.count(); p += warps) {
      const i64 a = q.row(p), b = q.column(p);
      if (b < q.reach.begin(a)) continue;
      const i64 lo = q.indptr[q.members[a]], to = q.indptr[q.members[b]];
      const int n = (int)(q.indptr[q.members[a] + 1] - lo), m = (int)(q.indptr[q.members[b] + 1] - to);
      double value = 0.0, above = tol, below = tol;
      if (top == 0.0) {
        value = above = below = 0.0;
      } else if (n == 1 || m == 1) {
        value = product_cost<L>(q, lo, n, to, m, cost);
        above = below = (n + m + 4) * EPS * value;
      } else if (n + m == 4) {
        const real* x = cost + q.indices[lo] * q.n_states;
        const real* y = cost + q.indices[lo + 1] * q.n_states;
        const u32 z = q.indices[to], t = q.indices[to + 1];
        const double* pa = q.probs + lo;
        const double* pb = q.probs + to;
        unsigned short* mine = keep ? kept + q.reach.number(a, b) * 2 * widest : kept;
        const bool known = keep == FROZEN && mine[0] != 0;
        const bool crossed = known ? mine[0] == 2 : (double)x[z] + (double)y[t] > (double)x[t] + (double)y[z];
        value = two_by_two_along(pa[0], pa[1], pb[0], pb[1], x[z], x[t], y[z], y[t], crossed);
        sync<L>();
        if (keep && !known && lane == 0) mine[0] = crossed ? 2 : 1;
        above = below = two_by_two_doubt(pa[0], pa[1], pb[0], pb[1], x[z], x[t], y[z], y[t], value);
      } else {
        double biggest = 0.0;
        for (int i = 0; i < n; ++i) {
          const real* row = cost + q.indices[lo + i] * q.n_states;
          for (int j = lane; j < m; j += L) {
            part[i * (m | 1) + j] = (double)row[q.indices[to + j]];
            biggest = fmax(biggest, part[i * (m | 1) + j]);
          }
        }
        biggest = largest<L>(biggest);
        const WideTree tree = wide_tree(part + widest * (widest + 1), n, m, part, m | 1);
        unsigned short* mine = keep ? kept + q.reach.number(a, b) * 2 * widest : kept;
        const bool warm = keep && mine[0] != 0;
        if (warm)
          for (int v = 1 + lane; v < n + m; v += L) tree.parent[v] = mine[v];
        sync<L>();
        const double pricing = keep == FROZEN ? INFINITE : inv_p == 1.0 ? tol : share * biggest;
        const int more = solve<L, WIDE_SHIFT>(tree, mass + lo, mass + to, warm, pricing);
        if (keep) {
          for (int v = 1 + lane; v < n + m; v += L) mine[v] = (unsigned short)tree.parent[v];
          if (lane == 0) mine[0] = 1;
        }
        value = tree_value<L, WIDE_SHIFT>(tree, unit);
        // Masses are rounded to units, and potentials and the value are sums along the tree.
        above = (n + m) * (unit + 4.0 * EPS) * biggest;
        below = above + (inv_p == 1.0 ? tol : violation<L>(tree));
        if (inv_p != 1.0 && same_rows<L>(q, lo, n, to, m)) above = below = 0.0;
        pivots += more;
        sync<L>();
      }
      worst = fmax(worst, root_error(value, above, below, inv_p));
      if (lane == 0) out[p] = (real)root(value, inv_p);
    }
    if (lane == 0) {
      raise(&tally->error, worst);
      count_iterations(tally, pivots);
    }
  );
}

// A tree of at most N × N nodes in 16 bytes (N = 8) or 4 (N = 4): its cells i·N + j, from the root outwards, so that
// each cell joins one new node to those before it. The root is the row of the first cell.
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

template <class T> struct MassOf;  // integers that hold the lifted masses
template <> struct MassOf<float> { typedef int type; enum { shift = 5, bits = 25 }; };
template <> struct MassOf<double> { typedef i64 type; enum { shift = 5, bits = 57 }; };
typedef unsigned short u16;

// A tree on N rows (nodes 0 … N − 1) and N columns (N … 2N − 1) in shared memory, for P lanes.
//
// A node is known by the set of arcs on its way to the root. The way between two nodes is then the difference of their
// sets, and a pivot adds the cycle (mod 2) to all sets that have the arc that leaves. There are no links to follow, so
// lanes share the nodes and arcs evenly. Arcs are numbered by the node that they joined to the tree at first; a new arc
// takes the number of the one that leaves. Nodes without mass that fill up a side have potential −∞.
template <int N, int P> struct SmallTree {
  typedef MassOf<real>::type Mass;
  enum { NODES = 2 * N, SHIFT = MassOf<real>::shift };
  // Lengths of a pair's arrays: what lanes of a warp read at once is in different banks.
  enum { COSTS = N * N + 8, NUMBERS = NODES + 4, SETS = 6 * N + 4 };
  enum { BYTES = COSTS * sizeof(real) + NUMBERS * (8 + sizeof(Mass)) + SETS };
  real* cost;    // of cell column · N + row, as they lie in strips
  double* pot;   // exact up to double rounding for floats too, so pivots can go on from each other
  Mass* flow;    // of arcs
  u16* way;      // of nodes: the set of arcs to the root
  unsigned char* cell;  // of arcs
  u32 low_rows;  // arcs whose lower node is a row
  int n, m, part;

  DEVICE SmallTree(int n, int m) : low_rows((1u << N) - 1), n(n), m(m), part(threadIdx.x % P) {
    constexpr int PAIRS = 4 * LANES / P;
    const int pair = threadIdx.x / P;
    real* costs = (real*)pool;
    double* pots = (double*)(costs + PAIRS * COSTS);
    Mass* flows = (Mass*)(pots + PAIRS * NUMBERS);
    unsigned char* sets = (unsigned char*)(flows + PAIRS * NUMBERS) + pair * SETS;
    cost = costs + pair * COSTS;
    pot = pots + pair * NUMBERS;
    flow = flows + pair * NUMBERS;
    way = (u16*)sets;
    cell = sets + 2 * NODES;
  }

  // Masses where flows will be, those of columns below 0; no arcs.
  DEVICE void begin(const Mass* masses, i64 stride, i64 a, i64 b) const {
    for (int k = 0; k < NODES / P; ++k) {
      const int v = part + P * k, j = v - N;
      const bool real_node = v < N ? v < n : j < m;
      const Mass mass = masses[(v < N ? v : j) * stride + (v < N ? a : b)];
      const Mass lifted = (Mass)(v < N ? lifted_row<SHIFT>(mass) : -lifted_column<SHIFT>(mass, j == m - 1, n));
      flow[v] = real_node ? lifted : 0;
      pot[v] = real_node ? 0.0 : -INFINITE;
      way[v] = 0;
      cell[v] = 0;
    }
  }

  // A feasible tree by the row-minimum rule, for one lane. Each arc is the last one of a row or a column, so from the
  // last arc backwards each joins one new node.
  DEVICE Code<N> new_tree() const {
    Code<N> code;
    code.clear();
    u32 open = (1u << m) - 1;
    for (int k = n + m - 2, i = 0; k >= 0; --k) {
      int best = 0;
      double low = INFINITE;
      for (int j = 0; j < N; ++j)
        if ((open >> j & 1) && (double)cost[j * N + i] < low) { low = (double)cost[j * N + i]; best = j; }
      code.put(k, i * N + best);
      const Mass here = flow[i], there = -flow[N + best];
      if (i < n - 1 && (here <= there || !(open & (open - 1)))) {
        flow[N + best] += here;
        ++i;
      } else {
        flow[i] -= there;
        open &= ~(1u << best);
      }
    }
    return code;
  }

  // Ways, potentials and flows of a tree, for one lane; returns whether no flow is negative.
  DEVICE bool take(const Code<N>& code) const {
    const int arcs = n + m - 1, root = code.cell(0) / N;
    u64 uppers = 0, lowers = 0;  // four bits an arc
    u32 known = 1u << root;
#pragma unroll
    for (int k = 0; k < 2 * N - 1; ++k) {
      if (k >= arcs) break;
      const int c = code.cell(k), i = c / N, j = c % N;
      const bool down = known >> i & 1;  // from the row to the column
      const int up = down ? i : N + j, low = down ? N + j : i;
      known |= 1u << low;
      uppers |= (u64)up << 4 * k;
      lowers |= (u64)low << 4 * k;
      cell[low] = (unsigned char)(j * N + i);
      way[low] = (u16)(way[up] | 1u << low);
      pot[low] = (double)cost[j * N + i] - pot[up];
    }
    bool feasible = true;
#pragma unroll
    for (int k = 2 * N - 2; k >= 0; --k) {
      if (k >= arcs) continue;
      const int up = (int)(uppers >> 4 * k & 15), low = (int)(lowers >> 4 * k & 15);
      const Mass beyond = flow[low], through = low < N ? beyond : -beyond;
      flow[up] += beyond;
      flow[low] = through;
      feasible &= through >= 0;
    }
    return feasible;
  }

  // The cell of least reduced cost, for all lanes alike, and N · N where none is below −tol.
  DEVICE int best_cell(double tol, double& least) const {
    constexpr int R = N / P, E = 16 / sizeof(real), W = R < E ? R : E;  // rows of a lane, and how many lie together
    double low = -tol, u[R];
    int best = N * N;
#pragma unroll
    for (int r = 0; r < R; ++r) u[r] = pot[(r / W * P + part) * W + r % W];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const double v = pot[N + j];
#pragma unroll
      for (int h = 0; h < R / W; ++h) {
        const int c = j * N + (h * P + part) * W;
        const Packed<real, W> costs = *(const Packed<real, W>*)(cost + c);
#pragma unroll
        for (int e = 0; e < W; ++e) {
          const double reduced = (double)costs.at[e] - u[h * W + e] - v;
          if (reduced < low) { low = reduced; best = c + e; }
        }
      }
    }
    for (int k = 1; k < P; k *= 2) {
      const double other = across(low, k);
      const int there = across(best, k);
      if (other < low || (other == low && there < best)) { low = other; best = there; }
    }
    least = low;
    return best;
  }

  // Let a cell enter and the arc of least flow that loses some leave. All lanes come here; only where `wanted` is
  // anything done.
  DEVICE void pivot(bool wanted, int entering, double reduced) {
    const int row = wanted ? entering % N : 0, column = N + (wanted ? entering / N : 0);
    const u32 from_row = way[row], from_column = way[column], cycle = from_row ^ from_column;
    const u32 losing = cycle & ((from_row & low_rows) | (from_column & ~low_rows));
    Mass old[NODES / P], theta = 0;
    int leaving = NODES;
    for (int k = 0; k < NODES / P; ++k) {
      const int s = part + P * k;
      old[k] = flow[s];
      if ((losing >> s & 1) && (leaving == NODES || old[k] < theta)) { theta = old[k]; leaving = s; }
    }
    for (int k = 1; k < P; k *= 2) {
      const Mass other = across(theta, k);
      const int there = across(leaving, k);
      if (there < NODES && (leaving == NODES || other < theta || (other == theta && there < leaving))) {
        theta = other;
        leaving = there;
      }
    }
    leaving &= NODES - 1;  // it is there wherever it is wanted
    const bool row_below = from_row >> leaving & 1;  // the part that is cut off has the row
    const int cut = cell[leaving], end = low_rows >> leaving & 1 ? cut % N : N + cut / N;
    const u32 turned = (row_below ? from_row : from_column) ^ way[end];
    const double shift = row_below ? reduced : -reduced;
    sync<LANES>();
    if (wanted) {
      low_rows = (low_rows ^ turned) & ~(1u << leaving);
      low_rows |= (u32)row_below << leaving;
      if (part == 0) cell[leaving] = (unsigned char)entering;
      for (int k = 0; k < NODES / P; ++k) {
        const int v = part + P * k;
        if (cycle >> v & 1) flow[v] = v == leaving ? theta : old[k] + (losing >> v & 1 ? -theta : theta);
        const u32 mine = way[v];
        if (mine >> leaving & 1) {
          way[v] = (u16)(mine ^ cycle ^ 1u << leaving);
          pot[v] += v < N ? shift : -shift;
        }
      }
    }
    sync<LANES>();
  }

  // Σ flow · cost of the true masses, for all lanes alike.
  DEVICE double value() const {
    double total = 0.0;
    for (int k = 0; k < NODES / P; ++k) {
      const int s = part + P * k;
      const i64 units = ((i64)flow[s] + ((i64)1 << (SHIFT - 1))) >> SHIFT;
      if (units > 0) total += (double)units * (double)cost[cell[s]];
    }
    return sum_of_parts<P>(total) * (1.0 / (double)((i64)1 << MassOf<real>::bits));
  }

  // The tree from the root outwards, for one lane: arcs sorted by the length of the way of their lower node.
  DEVICE Code<N> packed() const {
    u64 counts = 0, lengths = 0;  // four bits a length, or an arc
    for (int s = 0; s < NODES; ++s) {
      const int c = cell[s];
      const u32 mine = way[low_rows >> s & 1 ? c % N : N + c / N];
      const int length = mine >> s & 1 ? bits_in(mine) : 0;  // 0: no arc has this number
      lengths |= (u64)length << 4 * s;
      if (length) counts += (u64)1 << 4 * length;
    }
    u64 places = counts * 0x1111111111111111ull << 4;  // the number of shorter ones
    Code<N> code;
    code.clear();
    for (int s = 0; s < NODES; ++s) {
      const int length = (int)(lengths >> 4 * s & 15), c = cell[s];
      if (length == 0) continue;
      code.put((int)(places >> 4 * length & 15), c % N * N + c / N);
      places += (u64)1 << 4 * length;
    }
    return code;
  }
};

// Supports of at most N states, P neighbouring lanes a pair. Lanes of a warp go through all loops together.
template <int N, int P>
DEVICE void small_exact(Tally* tally, const u32* slots, const typename MassOf<real>::type* slot_mass, const int* sizes,
                        const Reach& reach, i64 a0, i64 n_states, const real* strips, double inv_p, double share,
                        i64 keep, Code<N>* kept, real* out, double& worst, u32& pivots) {
  constexpr int E = 16 / sizeof(real), CHUNKS = N / E;  // of a column
  const i64 row = blockIdx.y, a = a0 + row, n_members = reach.members;
  i64 b = reach.corner + (i64)blockIdx.x * (4 * LANES / P) + threadIdx.x / P;
  const bool inside = b < n_members && b >= reach.begin(a);
  if (!any_lane(inside)) return;
  if (!inside) b = b < n_members ? reach.begin(a) : n_members - 1;  // some pair, to go along
  real* place = out + row * reach.width() + b - reach.corner;
  const double top = double_of(tally->top);
  SmallTree<N, P> t(sizes[a], sizes[b]);
  const bool leads = t.part == 0;
  if (top == 0.0) {
    if (inside && leads) *place = 0;
    return;
  }
  const real* strip = strips + row * n_states * N;
  for (int k = 0; k < N * CHUNKS / P; ++k) {
    const int chunk = k * P + t.part, j = chunk / CHUNKS;
    const real* column = strip + (i64)slots[j * n_members + b] * N;
    copy_16<(P > 1)>(t.cost + chunk * E, column + chunk % CHUNKS * E);
  }
  Code<N>* store = kept + reach.number(a, b);
  Code<N> code;
  code.clear();
  bool cold = true;
  if (keep) {
    code = *store;
    cold = !code.filled();
  }
  copied();
  sync<LANES>();
  double tol = share * top, biggest = top;
  if (inv_p != 1.0) {
    biggest = 0.0;
    for (int j = 0; j < t.m; ++j)
      for (int i = 0; i < t.n; ++i) biggest = fmax(biggest, (double)t.cost[j * N + i]);
    tol = share * biggest;
  }
  bool ready = false;
  while (any_lane(!ready)) {
    if (any_lane(!ready && cold)) {
      if (!ready && cold) t.begin(slot_mass, n_members, a, b);
      sync<LANES>();
      if (!ready && cold && leads) code = t.new_tree();
      sync<LANES>();
    }
    if (!ready) t.begin(slot_mass, n_members, a, b);
    sync<LANES>();
    const bool good = from_leader<P>(ready || !leads || t.take(code));
    sync<LANES>();
    ready = good || cold;  // a tree of other masses may be infeasible, a new one is not
    cold = cold || !good;
  }
  int more = cold;
  double reduced = 0.0;
  for (int steps = 0; steps < 200 * N; ++steps) {  // far above what is seen; the answer is feasible anyway
    const int entering = t.best_cell(tol, reduced);
    const bool wanted = inside && entering < N * N;
    if (!any_lane(wanted)) break;
    t.pivot(wanted, entering, reduced);
    more += wanted;
  }
  if (inv_p != 1.0) t.best_cell(0.0, reduced);  // what is left of the pricing's tolerance
  const double value = t.value();
  if (!inside || !leads) return;
  if (more && keep) *store = t.packed();
  pivots = more;
  // Masses are rounded to units, and potentials and the value are sums along the tree.
  double above = (t.n + t.m) * (1.0 / (double)((i64)1 << MassOf<real>::bits) + 4.0 * EPS) * biggest;
  double below = above + (inv_p == 1.0 ? tol : fmax(-reduced, 0.0));
  if (a == b) above = below = (t.n + t.m + 4) * EPS * value;
  worst = root_error(value, above, below, inv_p);
  *place = (real)root(value, inv_p);
}

#define SMALL_EXACT(N, P, BLOCKS)                                                                                     \
  extern "C" __global__ void __launch_bounds__(4 * LANES, BLOCKS)                                                     \
  exact_small_##N(Tally* tally, const u32* slots, const MassOf<real>::type* slot_mass, const int* sizes,              \
                  i64 n_members, i64 first, i64 corner, i64 a0, i64 n_states, const real* strips, double inv_p,       \
                  double share, i64 keep, Code<N>* kept, real* out) {                                                 \
    EACH_THREAD(                                                                                                      \
      if (tally->done) return;                                                                                        \
      const Reach reach = {n_members, first, corner};                                                                 \
      if (corner + ((i64)blockIdx.x + 1) * (blockDim.x / (P)) <= reach.begin(a0 + blockIdx.y)) return;                \
      double worst = 0.0;                                                                                             \
      u32 pivots = 0;                                                                                                 \
      small_exact<N, P>(tally, slots, slot_mass, sizes, reach, a0, n_states, strips, inv_p, share, keep, kept, out,   \
                        worst, pivots);                                                                               \
      worst = largest<LANES>(worst);                                                                                  \
      pivots = sum<LANES>(pivots);                                                                                    \
      if (lane_of(LANES) == 0) {                                                                                      \
        raise(&tally->error, worst);                                                                                  \
        count_iterations(tally, pivots);                                                                              \
      }                                                                                                               \
    );                                                                                                                \
  }
SMALL_EXACT(4, PARTS(2), 8)
SMALL_EXACT(8, PARTS(EXACT_PARTS), BY_SIZE(6, 7))  // as many blocks on a multiprocessor as shared memory holds

// What the kept plans of supports of at most N states cost now, one lane a pair. Flows of the true masses go from the
// leaves of the tree to its root, in integers; only the cells of the tree are read. A pair without a tree has the
// product plan. There is nothing to improve, and so no need of potentials, or of other lanes.
template <int N>
DEVICE double kept_cost(const Code<N>& code, const MassOf<real>::type* slot_mass, const u32* slots, int n, int m,
                        i64 n_members, i64 a, i64 b, const real* strip) {
  typedef MassOf<real>::type Mass;
  const int threads = blockDim.x;
  Mass* flow = (Mass*)pool + threadIdx.x;                           // of nodes [2N, threads], columns below 0
  u32* place = (u32*)((Mass*)pool + 2 * N * threads) + threadIdx.x;  // of columns in the strip [N, threads]
  const double unit = 1.0 / (double)((i64)1 << MassOf<real>::bits);
#pragma unroll
  for (int k = 0; k < N; ++k) {  // what fills up a side has no mass
    flow[k * threads] = slot_mass[k * n_members + a];
    flow[(N + k) * threads] = -slot_mass[k * n_members + b];
    place[k * threads] = slots[k * n_members + b] * N;
  }
  double total = 0.0;
  if (!code.filled()) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < m; ++j)
        total -= ((double)flow[i * threads] * unit) * (double)flow[(N + j) * threads] * (double)strip[place[j * threads] + i];
    return total * unit;
  }
  const int arcs = n + m - 1;
  u32 known = 1u << code.cell(0) / N, down = 0;  // nodes of the tree so far; arcs that joined a column
#pragma unroll
  for (int k = 0; k < 2 * N - 1; ++k) {
    if (k >= arcs) break;
    const int i = code.cell(k) / N, j = code.cell(k) % N;
    const bool joins_column = known >> i & 1;
    down |= (u32)joins_column << k;
    known |= 1u << (joins_column ? N + j : i);
  }
#pragma unroll
  for (int k = 2 * N - 2; k >= 0; --k) {
    if (k >= arcs) continue;
    const int i = code.cell(k) / N, j = code.cell(k) % N;
    const bool joins_column = down >> k & 1;
    const Mass beyond = flow[(joins_column ? N + j : i) * threads], through = joins_column ? -beyond : beyond;
    flow[(joins_column ? i : N + j) * threads] += beyond;
    if (through > 0) total += (double)through * (double)strip[place[j * threads] + i];
  }
  return total * unit;
}

#define KEPT_SMALL(N)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(4 * LANES)                                                             \
  kept_small_##N(const Tally* tally, const u32* slots, const MassOf<real>::type* slot_mass, const int* sizes,         \
                 i64 n_members, i64 first, i64 corner, i64 a0, i64 n_states, const real* strips, double inv_p,        \
                 const Code<N>* kept, real* out) {                                                                    \
    EACH_THREAD(                                                                                                      \
      const Reach reach = {n_members, first, corner};                                                                 \
      const i64 row = blockIdx.y, a = a0 + row, b = corner + (i64)blockIdx.x * blockDim.x + threadIdx.x;              \
      if (tally->done || b >= n_members || b < reach.begin(a)) return;                                                \
      const Code<N> code = kept[reach.number(a, b)];                                                                  \
      const double value = kept_cost<N>(code, slot_mass, slots, sizes[a], sizes[b], n_members, a, b,                  \
                                        strips + row * n_states * N);                                                 \
      out[row * reach.width() + b - corner] = (real)root(value, inv_p);                                               \
    );                                                                                                                \
  }
KEPT_SMALL(4)
KEPT_SMALL(8)
