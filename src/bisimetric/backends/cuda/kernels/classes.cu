// Classes of states from distances that stay on the device: the greedy cover, extents of classes, values of the averaged
// chain, the gap of the distances to values.
//
// A warp has a row of d, which must be symmetric. Vectors over the states are small: one read brings them to the host.
// Kernels of one block are emulated by a block of one thread.

// Calls use(s, t) for the entries of each row, spread over the lanes, and then end(s).
template <class Use, class End> DEVICE void each_row(i64 n, Use use, End end) {
  for (i64 s = global_thread() / LANES; s < n; s += all_threads() / LANES) {
    for (i64 t = lane_of(LANES); t < n; t += LANES) use(s, t);
    end(s);
  }
}

// total[s] = the weights of all t with d(s, t) ≤ reach (all 1 where there are none), bad = entries that are not finite.
extern "C" __global__ void neighbour_weights(const real* d, i64 n, double reach, i64 weighted, const double* weights,
                                             double* total, u64* bad) {
  EACH_THREAD(
    double near = 0.0;
    u64 odd = 0;
    each_row(n, [&](i64 s, i64 t) {
      const double x = (double)d[s * n + t];
      if (x <= reach) near += weighted ? weights[t] : 1.0;
      if (!(fabs(x) < INFINITE)) ++odd;
    }, [&](i64 s) {
      near = sum<LANES>(near);
      if (lane_of(LANES) == 0) total[s] = near;
      near = 0.0;
    });
    if (odd) atomicAdd(bad, odd);
  );
}

// rank[s]: how many states come before s, most neighbours first, then by index.
extern "C" __global__ void rank_states(const double* total, i64 n, u32* rank) {
  EACH_THREAD(
    u32 before = 0;
    each_row(n, [&](i64 s, i64 t) {
      if (total[t] > total[s] || (total[t] == total[s] && t < s)) ++before;
    }, [&](i64 s) {
      before = sum<LANES>(before);
      if (lane_of(LANES) == 0) rank[s] = before;
      before = 0;
    });
  );
}

// Takes another free state (~0: none) where it is nearer, or as near and before.
DEVICE inline void nearer(double& best, u32& nearest, double x, u32 state) {
  if (state != ~0u && (nearest == ~0u || x < best || (x == best && state < nearest))) { best = x; nearest = state; }
}

enum Fate { OPEN = 0, MEDOID = 1, COVERED = 2 };

// One round of the greedy cover: an open state is covered once an earlier state within reach is a medoid, and a medoid
// once all earlier ones within reach are covered. What is decided never changes, so rounds need no order inside them.
// left[k] counts the open states after round k.
extern "C" __global__ void cover_round(const real* d, i64 n, double reach, const u32* rank, i64 round, u32* fate,
                                       u32* left) {
  EACH_THREAD(
    if (round > 0 && left[round - 1] == 0) return;
    volatile u32* seen = fate;
    u32 open = 0;
    for (i64 s = global_thread() / LANES; s < n; s += all_threads() / LANES) {
      if (seen[s] != OPEN) continue;
      bool covered = false;
      bool waits = false;
      for (i64 start = 0; start < n && !covered; start += LANES) {
        const i64 t = start + lane_of(LANES);
        if (t < n && rank[t] < rank[s] && (double)d[s * n + t] <= reach) {
          const u32 other = seen[t];
          covered = other == MEDOID;
          waits = waits || other == OPEN;
        }
        covered = any_lane(covered);
      }
      waits = any_lane(waits);
      if (!covered && waits) ++open;
      else if (lane_of(LANES) == 0) seen[s] = covered ? COVERED : MEDOID;
    }
    if (open && lane_of(LANES) == 0) atomicAdd(left + round, open);
  );
}

// What the rounds left open, by one block and in the order of the ranks: states on a line may wait for each other one by
// one, and then a row a state is all that must be read.
extern "C" __global__ void __launch_bounds__(1024)
cover_the_rest(const real* d, i64 n, double reach, const u32* rank, const u32* left, u32* order, u32* fate) {
  EACH_THREAD(
    if (*left == 0) return;
    for (i64 s = threadIdx.x; s < n; s += blockDim.x) order[rank[s]] = (u32)s;
    block_sync();
    for (i64 k = 0; k < n; ++k) {
      const i64 s = order[k];
      if (((volatile u32*)fate)[s] != OPEN) continue;  // the same on all threads
      bool covered = false;
      for (i64 t = threadIdx.x; t < n; t += blockDim.x)
        covered = covered || (fate[t] == MEDOID && rank[t] < k && (double)d[s * n + t] <= reach);
      covered = any_of_block(covered);
      if (threadIdx.x == 0) fate[s] = covered ? COVERED : MEDOID;
      block_sync();
    }
  );
}

// medoid_of[s]: the first medoid within reach of s; a medoid's own is itself.
extern "C" __global__ void first_medoids(const real* d, i64 n, double reach, const u32* rank, const u32* fate,
                                         u32* medoid_of) {
  EACH_THREAD(
    u64 first = ~0ull;
    each_row(n, [&](i64 s, i64 t) {
      if (fate[t] != MEDOID || (t != s && !((double)d[s * n + t] <= reach))) return;
      const u64 key = t == s ? (u64)t : ((u64)rank[t] << 32) + (1ull << 32) + (u64)t;  // itself before all others
      if (key < first) first = key;
    }, [&](i64 s) {
      first = smallest<LANES>(first);
      if (lane_of(LANES) == 0) medoid_of[s] = (u32)first;
      first = ~0ull;
    });
  );
}

// The cover whose classes have all pairs within reach, by one block: states become medoids in the order of their rank,
// and each takes the free state nearest to it (ties by index) as long as all pairs stay within reach.
// order [n], farthest [n] and medoid_of [n] (~0: free) are work space.
extern "C" __global__ void __launch_bounds__(1024)
cover_by_diameter(const real* d, i64 n, double reach, const u32* rank, u32* order, real* farthest, u32* medoid_of) {
  __shared__ double distances[32];
  __shared__ u32 states[32];
  __shared__ u32 taken;
  EACH_THREAD(
    const u32 none = ~0u;
    for (i64 s = threadIdx.x; s < n; s += blockDim.x) { order[rank[s]] = (u32)s; medoid_of[s] = none; }
    block_sync();
    for (i64 k = 0; k < n; ++k) {
      const u32 medoid = order[k];
      if (((volatile u32*)medoid_of)[medoid] != none) continue;  // the same on all threads
      block_sync();
      if (threadIdx.x == 0) medoid_of[medoid] = medoid;
      for (i64 t = threadIdx.x; t < n; t += blockDim.x) farthest[t] = 0;
      block_sync();
      for (u32 last = medoid; last != none;) {
        double best = INFINITE;
        u32 nearest = none;
        for (i64 t = threadIdx.x; t < n; t += blockDim.x) {  // each thread has its own states, in increasing order
          if (medoid_of[t] != none) continue;
          const real far = farthest[t] > d[last * n + t] ? farthest[t] : d[last * n + t];
          farthest[t] = far;
          const double x = (double)d[(i64)medoid * n + t];
          if ((double)far <= reach && (nearest == none || x < best)) { best = x; nearest = (u32)t; }
        }
        for (int step = 16; step > 0; step >>= 1) nearer(best, nearest, across(best, step), across(nearest, step));
        if (lane_of(LANES) == 0) { distances[threadIdx.x / LANES] = best; states[threadIdx.x / LANES] = nearest; }
        block_sync();
        if (threadIdx.x == 0) {
          for (int w = 1; w < (int)blockDim.x / LANES; ++w) nearer(best, nearest, distances[w], states[w]);
          if (nearest != none) medoid_of[nearest] = medoid;
          taken = nearest;
        }
        block_sync();
        last = taken;
      }
    }
  );
}

// extents[0] = the largest distance of a state from its medoid, extents[1] = the largest one inside a class.
extern "C" __global__ void class_extents(const real* d, i64 n, const u32* medoid_of, u64* extents) {
  EACH_THREAD(
    double radius = 0.0;
    double diameter = 0.0;
    each_row(n, [&](i64 s, i64 t) {
      if (s == t || medoid_of[s] != medoid_of[t]) return;
      const double x = (double)d[s * n + t];
      diameter = fmax(diameter, x);
      if (t == (i64)medoid_of[s]) radius = fmax(radius, x);
    }, [](i64) {});
    radius = largest<LANES>(radius);
    diameter = largest<LANES>(diameter);
    if (lane_of(LANES) == 0) { raise(extents, radius); raise(extents + 1, diameter); }
  );
}

// out[c] = Σ shares (r + γ P V) over the states of class c, which are members[starts[c]] …; successors are classes. A
// warp has a class.
extern "C" __global__ void averaged_backup(const i64* members, const i64* starts, const i64* indptr,
                                           const u32* successors, const double* probs, const double* rewards,
                                           const double* shares, i64 n_classes, double gamma, const double* V,
                                           double* out, u64* change) {
  EACH_THREAD(
    double most = 0.0;
    for (i64 c = global_thread() / LANES; c < n_classes; c += all_threads() / LANES) {
      double total = 0.0;
      for (i64 m = starts[c] + lane_of(LANES); m < starts[c + 1]; m += LANES) {
        const i64 s = members[m];
        double ahead = 0.0;
        for (i64 k = indptr[s]; k < indptr[s + 1]; ++k) ahead += probs[k] * V[successors[k]];
        total += shares[s] * (rewards[s] + gamma * ahead);
      }
      total = sum<LANES>(total);
      most = fmax(most, fabs(total - V[c]));
      if (lane_of(LANES) == 0) out[c] = total;
    }
    if (lane_of(LANES) == 0) raise(change, most);
  );
}

// gap = max |d(s, t) − |V(s) − V(t)||.
extern "C" __global__ void value_gap(const real* d, i64 n, const double* V, u64* gap) {
  EACH_THREAD(
    double most = 0.0;
    each_row(n, [&](i64 s, i64 t) { most = fmax(most, fabs((double)d[s * n + t] - fabs(V[s] - V[t]))); }, [](i64) {});
    most = largest<LANES>(most);
    if (lane_of(LANES) == 0) raise(gap, most);
  );
}
