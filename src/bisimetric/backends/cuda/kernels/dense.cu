// Steps of Sinkhorn's iteration between matrix products, for rows that reach most states.

// Vectors of the pairs at work, [kind][pair][state]: what the products start from; a Newton step and its direction,
// residual, weights and column sums.
enum { START, STEP, WAY, RESIDUAL, WEIGHT, COLUMNS };

// A pair's progress with Newton steps.
struct State {
  double error, reach, product, first_product;
  int solving, solves, tried, rest;
};

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
      if (lane_of(L) == 0) atomicAdd(active, 1);
      const bool lost = !((double)error < 1e300);  // out of range: start again
      for (i64 j = lane_of(L); j < n; j += L) {
        y[p * n + j] = target[j] > 0 ? (lost ? target[j] : target[j] / q[p * n + j]) : 0;
      }
    }
  );
}

// As `rows_exact`; for pairs that solve a Newton system, x times its weights.
extern "C" __global__ void between_products(const real* matrix, const int* row_of, i64 pairs, i64 n,
                                            const State* states, const real* vectors, real* x) {
  EACH_THREAD(
    const real* weights = vectors + WEIGHT * pairs * n;
    for (i64 k = global_thread(); k < pairs * n; k += all_threads()) {
      if (states[k / n].solving) {
        x[k] *= weights[k];
      } else {
        const real a = matrix[row_of[k / n] * n + k % n];
        x[k] = a > 0 ? a / x[k] : 0;
      }
    }
  );
}

// What each pair does next: a plain scaling, or steps of conjugate gradients on a Newton system and the Newton step.
// As in the kernels of the CPU, where it is explained.
extern "C" __global__ void after_products(const real* matrix, const int* row_of, const int* column_of, i64 pairs, i64 n,
                                          const real* x, const real* q, real* y, real* vectors, State* states,
                                          double tol, i64 last, real* errors, int* active) {
  EACH_THREAD(
    const int L = LANES;
    const double foreseen = 5.0, solved_share = 1e-2, most_reach = 64.0;
    const int most_solving = 40, tries = 4, rest = 8;
    for (i64 p = global_thread() / L; p < pairs; p += all_threads() / L) {
      const i64 at = p * n, stride = pairs * n;
      const real* target = matrix + column_of[p] * n;
      real* start = vectors + START * stride + at;
      real* step = vectors + STEP * stride + at;
      real* way = vectors + WAY * stride + at;
      real* residual = vectors + RESIDUAL * stride + at;
      real* weight = vectors + WEIGHT * stride + at;
      real* columns = vectors + COLUMNS * stride + at;
      State state = states[p];
      double move = 0.0;  // share of the Newton step by which log y moves
      if (state.solving) {
        double curvature = 0.0;
        for (i64 j = lane_of(L); j < n; j += L) {
          curvature += (double)way[j] * (double)(columns[j] * way[j] - y[at + j] * q[at + j]);
        }
        curvature = sum<L>(curvature);
        double after = -1.0;
        if (curvature > 0.0) {
          const real length = (real)(state.product / curvature);
          double total = 0.0;
          for (i64 j = lane_of(L); j < n; j += L) {
            const real image = columns[j] * way[j] - y[at + j] * q[at + j];
            step[j] += length * way[j];
            residual[j] -= length * image;
            if (columns[j] > 0) total += (double)residual[j] * (double)residual[j] / (double)columns[j];
          }
          after = sum<L>(total);
          const real turn = (real)(after / state.product);
          for (i64 j = lane_of(L); j < n; j += L) {
            const real next = (columns[j] > 0 ? residual[j] / columns[j] : 0) + turn * way[j];
            way[j] = next;
            start[j] = y[at + j] * next;
          }
        }
        state.solves += 1;
        state.product = after;
        if (!(after > solved_share * state.first_product) || state.solves >= most_solving || last) {
          double longest = 0.0;
          for (i64 j = lane_of(L); j < n; j += L) longest = fmax(longest, fabs((double)step[j]));
          longest = largest<L>(longest);
          const real shrink = longest > state.reach ? (real)(state.reach / longest) : 1;
          for (i64 j = lane_of(L); j < n; j += L) step[j] *= shrink;
          state.solving = 0;
          state.tried = 1;
          move = 1.0;
        }
        if (lane_of(L) == 0) atomicAdd(active, 1);
      } else {
        const double before = state.error;
        double error = 0.0;
        for (i64 j = lane_of(L); j < n; j += L) {
          error += fabs((double)q[at + j] * (double)y[at + j] - (double)target[j]);
        }
        error = sum<L>(error);
        if (lane_of(L) == 0) errors[p] = (real)error;
        if (error <= tol) continue;
        if (lane_of(L) == 0) atomicAdd(active, 1);
        state.error = error;
        if (state.tried && !(error < before)) {  // too far: half of the way back, or all of it
          state.error = before;
          state.reach *= 0.5;
          if (state.tried < tries) {
            state.tried += 1;
            for (i64 j = lane_of(L); j < n; j += L) step[j] *= (real)0.5;
          } else {
            state.tried = 0;
            state.rest = rest;
          }
          move = -1.0;
        } else if (!(error < 1e300)) {  // out of range: start again
          state.tried = 0;
          state.rest = rest;
          state.error = 1e300;
          for (i64 j = lane_of(L); j < n; j += L) start[j] = y[at + j] = target[j];
        } else {
          state.rest -= 1;
          bool slow = state.tried > 0;  // where a Newton step was good, another follows
          if (state.tried == 1) state.reach = fmin(2.0 * state.reach, most_reach);
          if (!slow && state.rest < 0) slow = !(log(error / tol) < foreseen * log(before / error));
          state.tried = 0;
          if (slow && !last) {
            const real* row = matrix + row_of[p] * n;
            double product = 0.0;
            for (i64 j = lane_of(L); j < n; j += L) {
              const real sums = q[at + j] * y[at + j], missing = target[j] - sums;
              const real scaled = target[j] > 0 ? missing / sums : 0;
              weight[j] = row[j] > 0 ? x[at + j] * x[at + j] / row[j] : 0;
              columns[j] = sums;
              residual[j] = missing;
              way[j] = scaled;
              start[j] = y[at + j] * scaled;
              step[j] = 0;
              product += (double)missing * (double)scaled;
            }
            state.product = state.first_product = sum<L>(product);
            state.solving = 1;
            state.solves = 0;
          } else {
            for (i64 j = lane_of(L); j < n; j += L) {
              start[j] = y[at + j] = target[j] > 0 ? target[j] / q[at + j] : 0;
            }
          }
        }
      }
      if (move != 0.0) {
        for (i64 j = lane_of(L); j < n; j += L) start[j] = y[at + j] *= (real)exp(move * (double)step[j]);
      }
      if (lane_of(L) == 0) states[p] = state;
    }
  );
}

// out = ⟨z, y⟩ for z = (K∘C) x, or λ (⟨a, log(x/a)⟩ − ⟨b, log q⟩) for z = x, q = K x, to the power 1/p. The smallest of them,
// before the root, goes into `least` by its bits.
extern "C" __global__ void plan_costs(const real* matrix, const int* row_of, const int* column_of, const int* place_of,
                                      i64 pairs, i64 n, const real* z, const real* y, const real* q, double reg,
                                      i64 as_value, double inv_p, u64* least, real* out) {
  EACH_THREAD(
    const int L = LANES;
    for (i64 p = global_thread() / L; p < pairs; p += all_threads() / L) {
      const real* row = matrix + row_of[p] * n;
      const real* column = matrix + column_of[p] * n;
      double total = 0.0;
      for (i64 j = lane_of(L); j < n; j += L) {
        const double zj = (double)z[p * n + j];
        if (!as_value) total += zj * (double)y[p * n + j];
        else {
          if (row[j] > 0) total += (double)row[j] * log(zj / (double)row[j]);
          if (column[j] > 0) total -= (double)column[j] * log((double)q[p * n + j]);
        }
      }
      total = fmax(as_value ? reg * sum<L>(total) : sum<L>(total), 0.0);
      if (lane_of(L) == 0) {
        atomicMin(least, bits_of(total));
        out[place_of[p]] = (real)root(total, inv_p);
      }
    }
  );
}
