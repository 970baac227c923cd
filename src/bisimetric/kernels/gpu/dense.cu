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

// What is known of a pair's progress: errors at the last step and at the last look, the recurrence in use (0: plain
// scalings), steps since it was chosen, and how often it was given up.
struct Pace {
  double before, mark;
  int mode, since, retreats, unused;
};

// Chooses the recurrence for the next step: as in the kernels of the CPU, where its rates are explained.
DEVICE void choose(Pace& pace, double error) {
  const int plain = 4, look = 8, most_retreats = 2;
  pace.since += 1;
  if (pace.mode == 0) {
    if (pace.since >= plain && error > 0.5 * pace.before && pace.retreats < most_retreats) {
      pace.mode = 1 + (error > 0.9 * pace.before) + (error > 0.97 * pace.before);
      pace.since = 0;
      pace.mark = error;
    }
  } else if (pace.since % look == 0) {
    if (error > 0.5 * pace.mark) {
      pace.mode = pace.since = 0;
      pace.retreats += 1;
    }
    pace.mark = error;
  }
  pace.before = error;
}

// How far a scaling goes beyond its plain correction `fresh`.
DEVICE real ahead(int mode, real fresh, real old, real older) {
  const real gain = fresh / old, base = sqrt(fresh / older);
  real factor = gain * sqrt(base);
  if (mode == 2) factor = gain * sqrt(sqrt(gain)) * base;
  if (mode == 3) factor = gain * sqrt(gain) * base * sqrt(base);
  const real farthest = 8;
  return factor > farthest ? farthest : factor < 1 / farthest ? 1 / farthest : factor;
}

// L1 errors of the columns y∘q; where above tol, y is corrected and the pair counted in *active.
extern "C" __global__ void columns_corrected(const real* matrix, const int* column_of, i64 pairs, i64 n, const real* q,
                                             real* y, real* previous, Pace* paces, double tol, real* errors,
                                             int* active) {
  EACH_THREAD(
    const int L = LANES;
    for (i64 p = global_thread() / L; p < pairs; p += all_threads() / L) {
      const real* target = matrix + column_of[p] * n;
      real error = 0;
      for (i64 j = lane_of(L); j < n; j += L) error += fabs(q[p * n + j] * y[p * n + j] - target[j]);
      error = sum<L>(error);
      if (lane_of(L) == 0) errors[p] = error;
      if ((double)error <= tol) continue;
      if (lane_of(L) == 0) atomicAdd(active, 1);
      Pace pace = paces[p];
      const bool lost = !((double)error < 1e300);  // out of range: start again, without momentum
      if (lost) {
        pace.mode = pace.since = 0;
        pace.retreats = 1 << 20;
        pace.before = 1e300;
      } else {
        choose(pace, (double)error);
      }
      for (i64 j = lane_of(L); j < n; j += L) {
        const real old = y[p * n + j];
        real fresh = target[j] > 0 ? (lost ? target[j] : target[j] / q[p * n + j]) : 0;
        if (pace.mode > 0 && fresh > 0) fresh *= ahead(pace.mode, fresh, old, previous[p * n + j]);
        previous[p * n + j] = old;
        y[p * n + j] = fresh;
      }
      if (lane_of(L) == 0) paces[p] = pace;
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
