// What all kernels share. REAL is the type of the stored distances (float or double), set by the builder.
//
// The same text compiles as CUDA C++ and, for tests without a GPU, as plain C++: there a warp has one lane, and a
// launch is a loop over its blocks and threads. Functions of one pair work with LANES lanes in step.
#ifndef REAL
#define REAL double
#endif
typedef REAL real;
#define BY_SIZE(one, two) (sizeof(real) == 4 ? one : two)  // for float and double
#define REAL_EPS BY_SIZE(1.1920928955078125e-7, 2.220446049250313e-16)
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#ifdef __CUDACC__
#define LANES 32
#define PARTS(lanes) (lanes)  // lanes that share a pair
#define DEVICE __device__
#define EACH_THREAD(...) ([&] { __VA_ARGS__ })()
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000LL)
DEVICE inline i64 global_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE inline i64 all_threads() { return (i64)gridDim.x * blockDim.x; }
DEVICE inline int lane_of(int lanes) { return lanes == 1 ? 0 : threadIdx.x & 31; }
DEVICE inline u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
DEVICE inline double double_of(u64 x) { return __longlong_as_double((i64)x); }
#else
#include <cmath>
#include <cstring>
#include <limits>
using std::exp; using std::expm1; using std::fabs; using std::fmax; using std::fmin; using std::isnan; using std::log; using std::log1p; using std::pow;
using std::sqrt;
#define LANES 1
#define PARTS(lanes) 1
#define DEVICE
#define __global__
#define __launch_bounds__(...)
#define __shared__ static
#define INFINITE std::numeric_limits<double>::infinity()
#define NOT_A_NUMBER std::numeric_limits<double>::quiet_NaN()
struct Dim3 { int x, y; };
static Dim3 blockIdx, threadIdx, gridDim, blockDim;
extern "C" void launch_shape(int gx, int gy, int bx) { gridDim = {gx, gy}; blockDim = {bx, 1}; }
extern "C" int lanes_of_a_warp() { return LANES; }
#define EACH_THREAD(...)                                                       \
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)                   \
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)                 \
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)           \
  [&] { __VA_ARGS__ }()
DEVICE inline i64 global_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE inline i64 all_threads() { return (i64)gridDim.x * blockDim.x; }
DEVICE inline int lane_of(int) { return 0; }
DEVICE inline u64 bits_of(double x) { u64 y; std::memcpy(&y, &x, 8); return y; }
DEVICE inline double double_of(u64 x) { double y; std::memcpy(&y, &x, 8); return y; }
template <class T> DEVICE T atomicAdd(T* at, T x) { T old = *at; *at += x; return old; }
template <class T> DEVICE T atomicMin(T* at, T x) { T old = *at; *at = old < x ? old : x; return old; }
template <class T> DEVICE T atomicMax(T* at, T x) { T old = *at; *at = old > x ? old : x; return old; }
#endif

#define FROZEN 2  // `keep` of exact kernels: the plan of the kept tree is not improved, whatever it costs now

// What a sweep reports; every field has 8 bytes. Doubles are stored by their bits: for numbers ≥ 0 these are ordered.
struct Tally {
  u64 top, rise, fall, error, iterations, left, done, sweeps;
  u64 last_top, last_error, change, slow;  // slow: pairs that were left to the slow kernels
  u64 next;  // the next pair to be taken by a warp
  u64 last_rise, last_fall;
  u64 counts[32];  // iterations too, in several places because many warps add to them
};

template <int L> DEVICE inline void sync() {
#ifdef __CUDACC__
  if (L > 1) __syncwarp();
#endif
}

template <int L, class T> DEVICE inline T sum(T x) {
#ifdef __CUDACC__
  if (L > 1)
    for (int k = 16; k > 0; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
#endif
  return x;
}

template <int L, class T> DEVICE inline T largest(T x) {
#ifdef __CUDACC__
  if (L > 1)
    for (int k = 16; k > 0; k >>= 1) { T other = __shfl_xor_sync(~0u, x, k); x = x > other ? x : other; }
#endif
  return x;
}

template <int L, class T> DEVICE inline T smallest(T x) {
#ifdef __CUDACC__
  if (L > 1)
    for (int k = 16; k > 0; k >>= 1) { T other = __shfl_xor_sync(~0u, x, k); x = x < other ? x : other; }
#endif
  return x;
}

// Whether x holds on any lane of the warp, and the value of the lane whose number differs in the bits of k.
DEVICE inline bool any_lane(bool x) {
#ifdef __CUDACC__
  return __any_sync(~0u, x);
#else
  return x;
#endif
}

template <class T> DEVICE inline T across(T x, int k) {
#ifdef __CUDACC__
  return __shfl_xor_sync(~0u, x, k);
#else
  return x;
#endif
}

// All threads of the block meet, or learn whether x holds on any of them.
DEVICE inline void block_sync() {
#ifdef __CUDACC__
  __syncthreads();
#endif
}
DEVICE inline bool any_of_block(bool x) {
#ifdef __CUDACC__
  return __syncthreads_or(x);
#else
  return x;
#endif
}

// The sum over the P neighbouring lanes that share a pair, the same bits on each.
template <int P, class T> DEVICE inline T sum_of_parts(T x) {
  for (int k = 1; k < P; k *= 2) x += across(x, k);
  return x;
}

// The value of the first of the P lanes that share a pair.
template <int P, class T> DEVICE inline T from_leader(T x) {
#ifdef __CUDACC__
  if (P > 1) x = __shfl_sync(~0u, x, 0, P);
#endif
  return x;
}

DEVICE inline int bits_in(u32 x) {
#ifdef __CUDACC__
  return __popc(x);
#else
  return __builtin_popcount(x);
#endif
}

// 16 bytes from global to shared memory past the registers; `copied` waits for those of the calling thread. Where the
// lanes that share a pair take whole sectors of memory together, the first-level cache is passed by.
template <bool WHOLE_SECTORS> DEVICE inline void copy_16(void* to, const void* from) {
#ifdef __CUDACC__
  const u32 place = (u32)__cvta_generic_to_shared(to);
  if (WHOLE_SECTORS) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
#else
  std::memcpy(to, from, 16);
#endif
}
DEVICE inline void copied() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

DEVICE inline void raise(u64* field, double x) {
  u64 bits = bits_of(x);
  if (x > 0.0 && bits > *field) atomicMax(field, bits);
}

// The same with the largest number of a whole block, whose threads all come here: writes of many warps to one place wait
// for each other.
DEVICE inline void raise_by_block(u64* field, double x) {
  x = largest<LANES>(x);
#ifdef __CUDACC__
  __shared__ double of_warp[32];
  if (lane_of(LANES) == 0) of_warp[threadIdx.x / LANES] = x;
  __syncthreads();
  if (threadIdx.x < LANES) x = largest<LANES>(threadIdx.x < blockDim.x / LANES ? of_warp[threadIdx.x] : 0.0);
  __syncthreads();
#endif
  if (threadIdx.x == 0 || LANES == 1) raise(field, x);
}

DEVICE inline void count_iterations(Tally* tally, u64 iterations) {
  if (iterations) atomicAdd(&tally->counts[(blockIdx.x + 7 * blockIdx.y) & 31], iterations);
}

DEVICE inline double root(double x, double inv_p) { return inv_p == 1.0 ? x : pow(fmax(x, 0.0), inv_p); }

// How far value^(1/p) may be from that of a number in [value − below, value + above].
DEVICE inline double root_error(double value, double above, double below, double inv_p) {
  if (inv_p == 1.0) return fmax(above, below);
  const double here = root(value, inv_p);
  return fmax(root(value + above, inv_p) - here, here - root(value - below, inv_p));
}

// Which members of a group are compared: in one model a with b ≥ a + first; between two, each a before the corner, where
// the members of the second begin, with each b from it on (the corner is 0 where there is one model).
struct Reach {
  i64 members, first, corner;
  DEVICE i64 begin(i64 a) const { return corner ? corner : a + first; }  // the first b of row a
  DEVICE i64 width() const { return members - corner; }                  // of a block of pairs
  // The number of the first pair of row a among the pairs of the group, row by row, and that of a pair.
  DEVICE i64 start(i64 a) const { return corner ? a * width() : a * (members - first) - a * (a - 1) / 2; }
  DEVICE i64 number(i64 a, i64 b) const { return start(a) + b - begin(a); }
};

// The rows that a launch compares: members[a] for a0 ≤ a < a0 + rows. Pair p of the block is that of row p / width, and it
// is written to place p. Costs have n_states columns.
struct Pairs {
  const i64* indptr; const u32* indices; const double* probs; const i64* members;
  i64 a0, rows, n_states;
  Reach reach;
  DEVICE i64 count() const { return rows * reach.width(); }
  DEVICE i64 row(i64 p) const { return a0 + p / reach.width(); }
  DEVICE i64 column(i64 p) const { return reach.corner + p % reach.width(); }
};

// Close to the correctly rounded reciprocal, for any normal number: a seed and two Newton steps.
DEVICE inline float inverse(float x) { return 1.0f / x; }
DEVICE inline double inverse(double x) {
#ifdef __CUDACC__
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  y = fma(y, fma(-x, y, 1.0), y);
  return fma(y, fma(-x, y, 1.0), y);
#else
  return 1.0 / x;
#endif
}

// The row that holds the pair of a number.
DEVICE inline i64 row_of_pair(const Reach& reach, i64 number) {
  if (reach.corner) return number / reach.width();
  const double length = 2.0 * (double)(reach.members - reach.first) + 1.0;
  i64 a = (i64)(0.5 * (length - sqrt(fmax(length * length - 8.0 * (double)number, 0.0))));
  while (a > 0 && reach.start(a) > number) --a;
  while (reach.start(a + 1) <= number) ++a;
  return a;
}

// Shared memory of a size given at the launch. The work space of a warp is there where it fits.
#ifdef __CUDACC__
extern __shared__ __align__(16) unsigned char pool[];
#else
alignas(16) static unsigned char pool[1 << 20];
#endif
#define WORK_OF_WARP(numbers) \
  (in_shared ? (double*)pool + (threadIdx.x / LANES) * (numbers) : work + (global_thread() / LANES) * (numbers))

#define PAIR_ARGUMENTS                                                                                      \
  const Tally* shared_tally, const i64* indptr, const u32* indices, const double* probs, const i64* members, \
      i64 n_members, i64 first, i64 corner, i64 a0, i64 rows, i64 n_states
#define PAIR_VALUES                                                                                          \
  Tally* tally = (Tally*)shared_tally;                                                                       \
  Pairs q = {indptr, indices, probs, members, a0, rows, n_states, {n_members, first, corner}};
