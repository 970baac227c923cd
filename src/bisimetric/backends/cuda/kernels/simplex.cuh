// Exact transport between two small distributions: a primal network simplex on integer masses.
//
// Rows are nodes 0 … n−1, columns n … n+m−1; node 0 is the root. A tree is its parent links. Masses are integers that
// add up to the same total on either side, lifted by one unit a row (and n units in the last column): no flow
// of a tree is then 0 by accident, so the leaving arc is the only one and no pivot can cycle. Dividing a flow by the
// size of the lift gives the flow of the true masses, exactly, so that equal rows come out at exactly 0.
//
// All walks go from a node to the root, one lane a node, so the tree needs no order.

template <class Costs, class Reals, class Flows, class Nodes, int SHIFT> struct Tree {
  Costs cost; Reals pot; Flows flow; Nodes parent, depth, edge;
  int n, m, width;  // cost[i * width + j]

  DEVICE double arc(int v, int w) const {
    return v < n ? (double)cost[v * width + w - n] : (double)cost[w * width + v - n];
  }
};

// Parents from the n + m − 1 edges (edge[k] is row · m + column).
template <int L, class T> DEVICE void direct_edges(const T& t) {
  const int nodes = t.n + t.m, none = 255;
  for (int v = lane_of(L); v < nodes; v += L) t.depth[v] = v == 0 ? 0 : none;
  sync<L>();
  int reached = 1;
  while (reached < nodes) {
    int found = 0;
    for (int k = lane_of(L); k < nodes - 1; k += L) {
      const int i = t.edge[k] / t.m, j = t.n + t.edge[k] % t.m;
      const bool has_i = t.depth[i] != none, has_j = t.depth[j] != none;
      if (has_i && !has_j) { t.parent[j] = i; t.depth[j] = 0; ++found; }
      if (has_j && !has_i) { t.parent[i] = j; t.depth[i] = 0; ++found; }
    }
    sync<L>();
    reached += sum<L>(found);
  }
}

template <int SHIFT> DEVICE inline i64 lifted_row(i64 mass) { return (mass << SHIFT) + 1; }
template <int SHIFT> DEVICE inline i64 lifted_column(i64 mass, bool last, int n) {
  return (mass << SHIFT) + (last ? n : 0);
}

// A feasible tree by the row-minimum rule. row_mass and column_mass are the masses before the lift.
template <int L, int SHIFT, class T, class Masses>
DEVICE void cold_tree(const T& t, Masses row_mass, Masses column_mass) {
  const int n = t.n, m = t.m, lane = lane_of(L);
  for (int v = lane; v < n + m; v += L) {  // depth marks the columns that are filled
    t.flow[v] = v < n ? lifted_row<SHIFT>(row_mass[v]) : lifted_column<SHIFT>(column_mass[v - n], v == n + m - 1, n);
    t.depth[v] = 0;
  }
  sync<L>();
  int i = 0, open = m;
  for (int k = 0; k < n + m - 1; ++k) {
    double low = INFINITE;
    int best = n + m;
    for (int j = lane; j < m; j += L)
      if (t.depth[n + j] == 0 && (double)t.cost[i * t.width + j] < low) { low = (double)t.cost[i * t.width + j]; best = j; }
    const double least = smallest<L>(low);
    best = smallest<L>(low == least ? best : n + m);
    sync<L>();
    const auto here = t.flow[i], there = t.flow[n + best];
    const bool row_ends = i < n - 1 && (here <= there || open == 1);
    sync<L>();
    if (lane == 0) {
      t.edge[k] = i * m + best;
      if (row_ends) t.flow[n + best] = there - here;
      else { t.flow[i] = here - there; t.depth[n + best] = 1; }
    }
    if (row_ends) ++i; else --open;
    sync<L>();
  }
  direct_edges<L>(t);
}

// Depths and potentials (u_i + v_j = C_ij on the tree, u_0 = 0), each node by its own walk.
template <int L, class T> DEVICE void set_potentials(const T& t) {
  for (int v = lane_of(L); v < t.n + t.m; v += L) {
    double total = 0.0, sign = 1.0;
    int steps = 0;
    for (int x = v; x != 0; ++steps, sign = -sign) {
      const int above = t.parent[x];
      total += sign * t.arc(x, above);
      x = above;
    }
    t.depth[v] = steps;
    t.pot[v] = total;
  }
  sync<L>();
}

// Flows on the arcs to the parents; returns whether none is negative.
template <int L, int SHIFT, class T, class Masses>
DEVICE bool set_flows(const T& t, Masses row_mass, Masses column_mass) {
  const int n = t.n, nodes = t.n + t.m;
  for (int v = lane_of(L); v < nodes; v += L) t.flow[v] = 0;
  sync<L>();
  for (int v = lane_of(L); v < nodes; v += L) {
    i64 mass = v < n ? lifted_row<SHIFT>(row_mass[v]) : lifted_column<SHIFT>(column_mass[v - n], v == nodes - 1, n);
    for (int x = v; x != 0; x = t.parent[x], mass = -mass) {
      atomicAdd((u64*)&t.flow[x], (u64)mass);  // integers: the order does not matter
    }
  }
  sync<L>();
  int negative = 0;
  for (int v = 1 + lane_of(L); v < nodes; v += L) negative |= t.flow[v] < 0;
  return largest<L>(negative) == 0;
}

// The arc of least reduced cost among the next rows that have one below −tol. Rows are looked at in turn from
// `next`, all at once in a small problem and some at a time in a large one.
template <int L, class T> DEVICE bool best_arc(const T& t, double tol, int& next, int& row, int& column) {
  const int n = t.n, m = t.m, chunk = n * m <= 1024 ? n : (1024 + m - 1) / m;
  for (int seen = 0; seen < n; seen += chunk) {
    double low = -tol;
    int best = n * m;
    for (int k = 0; k < chunk; ++k) {
      const int i = next + k < n ? next + k : next + k - n;
      const double u = t.pot[i];
      for (int j = lane_of(L); j < m; j += L) {
        const double reduced = (double)t.cost[i * t.width + j] - u - (double)t.pot[n + j];
        if (reduced < low) { low = reduced; best = i * m + j; }
      }
    }
    const double least = smallest<L>(low);
    if (least < -tol) {
      best = smallest<L>(low == least ? best : n * m);
      row = best / m;
      column = n + best % m;
      return true;
    }
    next = next + chunk < n ? next + chunk : next + chunk - n;
  }
  return false;
}

// Let the arc (i, j) enter and the arc of least flow of its cycle leave.
template <int L, class T> DEVICE void pivot(const T& t, int i, int j) {
  const int n = t.n;
  int cut = -1, x = i, y = j;
  bool on_i = true;
  i64 theta = 0;
  while (x != y) {  // rows on i's side and columns on j's side lose flow
    if (t.depth[x] >= t.depth[y]) {
      if (x < n && (cut < 0 || t.flow[x] < theta)) { theta = t.flow[x]; cut = x; on_i = true; }
      x = t.parent[x];
    } else {
      if (y >= n && (cut < 0 || t.flow[y] < theta)) { theta = t.flow[y]; cut = y; on_i = false; }
      y = t.parent[y];
    }
  }
  sync<L>();
  if (lane_of(L) == 0) {
    for (x = i, y = j; x != y;) {
      if (t.depth[x] >= t.depth[y]) { t.flow[x] += x < n ? -theta : theta; x = t.parent[x]; }
      else { t.flow[y] += y < n ? theta : -theta; y = t.parent[y]; }
    }
    int v = on_i ? i : j, above = on_i ? j : i;
    for (i64 carried = theta;;) {  // hang the cut-off part up again by its end of the new arc
      const int old = t.parent[v];
      const i64 old_flow = t.flow[v];
      t.parent[v] = above;
      t.flow[v] = carried;
      if (v == cut) break;
      above = v; v = old; carried = old_flow;
    }
  }
  sync<L>();
}

template <int L, int SHIFT, class T> DEVICE double tree_value(const T& t, double unit) {
  double value = 0.0;
  for (int v = 1 + lane_of(L); v < t.n + t.m; v += L) {
    const i64 flow = ((i64)t.flow[v] + ((i64)1 << (SHIFT - 1))) >> SHIFT;
    if (flow > 0) value += (double)flow * t.arc(v, t.parent[v]);
  }
  return sum<L>(value) * unit;
}

// By how much a reduced cost is negative at most; masses are whole numbers of units, so flows are exact.
template <int L, class T> DEVICE double violation(const T& t) {
  double low = 0.0;
  for (int i = 0; i < t.n; ++i)
    for (int j = lane_of(L); j < t.m; j += L)
      low = fmin(low, (double)t.cost[i * t.width + j] - t.pot[i] - (double)t.pot[t.n + j]);
  return -smallest<L>(low);
}

// Pivot until no reduced cost is below −tol. Needs depths and potentials.
template <int L, class T> DEVICE int improve(const T& t, double tol) {
  int i, j, next = 0, pivots = 0;
  const int limit = 1000 + 200 * (t.n + t.m);  // far above what is seen; the answer is feasible anyway
  while (pivots < limit && best_arc<L>(t, tol, next, i, j)) {
    pivot<L>(t, i, j);
    set_potentials<L>(t);
    ++pivots;
  }
  return pivots;
}

// Solve from the tree in t.parent (warm) or from a new one. Leaves potentials, flows and the tree.
template <int L, int SHIFT, class T, class Masses>
DEVICE int solve(const T& t, Masses row_mass, Masses column_mass, bool warm, double tol) {
  if (!warm) cold_tree<L, SHIFT>(t, row_mass, column_mass);
  if (!set_flows<L, SHIFT>(t, row_mass, column_mass) && warm) {
    cold_tree<L, SHIFT>(t, row_mass, column_mass);
    set_flows<L, SHIFT>(t, row_mass, column_mass);
  }
  set_potentials<L>(t);
  return improve<L>(t, tol);
}

// Optimal cost between (a0, a1) and (b0, b1); what is left beside a diagonal is worked out on the side with less mass.
DEVICE inline double two_by_two_along(double a0, double a1, double b0, double b1, double c00, double c01, double c10,
                                      double c11, bool crossed) {
  if (crossed) {
    double c = c00; c00 = c01; c01 = c;
    c = c10; c10 = c11; c11 = c;
    c = b0; b0 = b1; b1 = c;
  }
  const double rest = a0 + b0 < a1 + b1 ? b0 - a0 : a1 - b1;
  return fmin(a0, b0) * c00 + fmin(a1, b1) * c11 + fmax(rest, 0.0) * c10 + fmax(-rest, 0.0) * c01;
}

DEVICE inline double two_by_two(double a0, double a1, double b0, double b1, double c00, double c01, double c10,
                                double c11) {
  return two_by_two_along(a0, a1, b0, b1, c00, c01, c10, c11, c00 + c11 > c01 + c10);
}

#define EPS 2.220446049250313e-16  // unit round-off of double

// By how much `two_by_two` may be off, before a root is taken.
DEVICE inline double two_by_two_doubt(double a0, double a1, double b0, double b1, double c00, double c01, double c10,
                                      double c11, double value) {
  const double largest_cost = fmax(fmax(c00, c01), fmax(c10, c11));
  return 8.0 * EPS * (value + (fmin(a0, a1) + fmin(b0, b1)) * largest_cost);
}

// Whether two rows of one model are equal, bit by bit; successors of two models have numbers of their own.
template <int L> DEVICE bool same_rows(const Pairs& q, i64 lo, int n, i64 to, int m) {
  int differ = n != m || q.reach.corner != 0;
  for (int k = lane_of(L); k < n && !differ; k += L)
    differ = q.indices[lo + k] != q.indices[to + k] || q.probs[lo + k] != q.probs[to + k];
  return largest<L>(differ) == 0;
}

// ⟨a⊗b, C⟩: the only coupling where one side has a single state.
template <int L> DEVICE double product_cost(const Pairs& q, i64 lo, int n, i64 to, int m, const real* cost) {
  double value = 0.0;
  for (int i = 0; i < n; ++i)
    for (int j = lane_of(L); j < m; j += L)
      value += q.probs[lo + i] * q.probs[to + j] * (double)cost[q.indices[lo + i] * q.n_states + q.indices[to + j]];
  return sum<L>(value);
}

// One pair with any supports: plain arrays in a work space of 4 (n + m) numbers.
#define WIDE_SHIFT 12
typedef Tree<const double*, double*, i64*, int*, WIDE_SHIFT> WideTree;

DEVICE inline WideTree wide_tree(double* work, int n, int m, const double* cost, int width) {
  const int nodes = n + m;
  double* pot = work;
  i64* flow = (i64*)(pot + nodes);
  int* parent = (int*)(flow + nodes);
  WideTree t = {cost, pot, flow, parent, parent + nodes, parent + 2 * nodes, n, m, width};
  return t;
}
