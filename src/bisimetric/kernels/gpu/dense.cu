// Steps of Sinkhorn's iteration between matrix products, for rows that reach most states.

// x = a / (K y) in place, where x holds K y [pairs, S].
extern "C" __global__ void rows_exact(const real* matrix, const int* row_of, i64 pairs, i64 n, real* x) {
  EACH_THREAD(
    for (i64 k = global_thread(); k < pairs * n; k += all_threads()) {
      const real a = matrix[row_of[k / n] * n + k % n];
      x[k] = a > 0 ? a / x[k] : 0;
    }
  );
}

// L1 errors of the columns y∘q; where above tol, y is corrected and the pair counted in *active.
extern "C" __global__ void columns_corrected(const real* matrix, const int* column_of, i64 pairs, i64 n, const real* q,
                                             real* y, double tol, real* errors, int* active) {
  EACH_THREAD(
    const int L = LANES;
    for (i64 p = global_thread() / L; p < pairs; p += all_threads() / L) {
      const real* target = matrix + column_of[p] * n;
      real error = 0;
      for (i64 j = lane_of(L); j < n; j += L) error += fabs(q[p * n + j] * y[p * n + j] - target[j]);
      error = sum<L>(error);
      if (lane_of(L) == 0) errors[p] = error;
      if ((double)error <= tol) continue;
      for (i64 j = lane_of(L); j < n; j += L) y[p * n + j] = target[j] > 0 ? target[j] / q[p * n + j] : 0;
      if (lane_of(L) == 0) atomicAdd(active, 1);
    }
  );
}

// out = ⟨z, y⟩ for z = (K∘C) x, or λ (⟨a, log(x/a)⟩ + ⟨b, log(y/b)⟩), to the power 1/p.
extern "C" __global__ void plan_costs(const real* matrix, const int* row_of, const int* column_of, const int* place_of,
                                      i64 pairs, i64 n, const real* z, const real* y, double reg, i64 as_value,
                                      double inv_p, real* out) {
  EACH_THREAD(
    const int L = LANES;
    for (i64 p = global_thread() / L; p < pairs; p += all_threads() / L) {
      const real* row = matrix + row_of[p] * n;
      const real* column = matrix + column_of[p] * n;
      double total = 0.0;
      for (i64 j = lane_of(L); j < n; j += L) {
        const double zj = (double)z[p * n + j], yj = (double)y[p * n + j];
        if (!as_value) total += zj * yj;
        else {
          if (row[j] > 0) total += (double)row[j] * log(zj / (double)row[j]);
          if (column[j] > 0) total += (double)column[j] * log(yj / (double)column[j]);
        }
      }
      total = sum<L>(total);
      if (lane_of(L) == 0) out[place_of[p]] = (real)root(fmax(as_value ? reg * total : total, 0.0), inv_p);
    }
  );
}
