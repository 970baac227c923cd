// What kernels with one thread a pair read: rows with at most N successors, transposed and padded with mass 0.
//
// For one row a and all states t, the costs C[successor i of a, t] lie side by side (a strip), so that a successor t of
// b costs one contiguous read instead of N scattered ones.

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Packed { T at[N]; };

extern "C" __global__ void make_strips(const Tally* tally, const u32* slots, i64 n_members, i64 a0, i64 rows, i64 width,
                                       i64 n_states, const real* cost, real* strips) {
  EACH_THREAD(
    if (tally->done) return;
    for (i64 k = global_thread(); k < rows * n_states; k += all_threads()) {
      const i64 a = a0 + k / n_states, t = k % n_states;
      for (i64 i = 0; i < width; ++i) strips[k * width + i] = cost[slots[i * n_members + a] * n_states + t];
    }
  );
}
