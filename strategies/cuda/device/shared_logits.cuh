// Logits that are sums along the columns which have them: each thread of a group has some columns of
// one row of the output, and threads that share a logit exchange their parts of it.
#ifndef TVM_SCATTER_SHARED_LOGITS
#define TVM_SCATTER_SHARED_LOGITS
#include "problem.cuh"

namespace tvm_scatter {

// Threads that share a logit: a power of two, so that some may have no columns.
template <class P, int vector>
__device__ __forceinline__ constexpr int sharing_lanes() {
  int lanes = 1;
  while (lanes * vector < P::Updates::summed_columns) lanes *= 2;
  return lanes;
}

// The lanes of a warp that are this thread's group of `lanes` threads. Groups may have gone different
// ways.
template <int lanes>
__device__ __forceinline__ uint32 lanes_of_group() {
  if constexpr (lanes == kWarp) return kAllLanes;
  return ((1u << lanes) - 1u) << (threadIdx.x % kWarp / lanes * lanes);
}

// The sum over threads side by side, in each of them.
template <int sharing, int lanes, class T>
__device__ __forceinline__ T sum_of_sharing(T value) {
  const uint32 group = lanes_of_group<lanes>();
#pragma unroll
  for (int distance = sharing / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(group, value, distance);
  return value;
}

// As `RowShare`, where threads share logits: a thread has columns of one logit, or none. One without
// reads those of another.
template <class P, int lanes, int vector>
struct LogitShare {
  using Offset = typename P::Offset;
  int64 row, tile;
  Offset first, step;
  bool writes;

  // Columns of a logit are never apart.
  __device__ __forceinline__ LogitShare(const Sizes<P>& sizes, int64 tiles, int64 group,
                                        int64 = 0) {
    constexpr int sharing = sharing_lanes<P, vector>();
    constexpr Offset columns = P::Updates::summed_columns;
    row = group / tiles;
    tile = group - row * tiles;
    const Offset lane = static_cast<Offset>(tile * lanes + threadIdx.x % lanes);
    const Offset logit = lane / sharing, logits = sizes.width() / columns;
    const Offset column = lane % sharing * vector;
    writes = logit < logits && column < columns;
    first = min(logit, static_cast<Offset>(logits - 1)) * columns + (column < columns ? column : 0);
    step = sizes.width();
  }
};

}  // namespace tvm_scatter
#endif
