// What kernels with a few lanes a pair read: rows with at most N successors, transposed and padded with mass 0.
//
// For one row a and all states t, the costs C[successor i of a, t] lie side by side (a strip), so that a successor t of
// b costs one contiguous read instead of N scattered ones.

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Packed { T at[N]; };
