// Adding up rows of updates that a list names.
#ifndef TVM_SCATTER_ROW_SUMS
#define TVM_SCATTER_ROW_SUMS
#include "grid.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

// Combine `count` vectors into `sum`, in order, with several loads in flight. They are held as they
// are stored, so that 16-bit types take half the registers.
template <class R, int vector, class Load, class Wide>
__device__ __forceinline__ void combine_run(Vector<Wide, vector>& sum, uint32 count, Load read) {
  using Stored = decltype(read(0u));
  // More would take registers, and with them threads, away.
  constexpr uint32 in_flight = 4;
  auto combine = [&](const Stored& held) {
    const auto value = widen(held);
#pragma unroll
    for (int i = 0; i < vector; ++i) sum.at[i] = R::combine(sum.at[i], value.at[i]);
  };
  uint32 start = 0;
  for (; start + in_flight <= count; start += in_flight) {
    Stored held[in_flight];
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u) held[u] = read(start + u);
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u) combine(held[u]);
  }
  Stored held[in_flight - 1];
#pragma unroll
  for (uint32 u = 0; u < in_flight - 1; ++u)
    if (start + u < count) held[u] = read(start + u);
#pragma unroll
  for (uint32 u = 0; u < in_flight - 1; ++u)
    if (start + u < count) combine(held[u]);
}

// Reads the updates of a list of items, in one column of vectors.
template <class P, class Key, int vector>
struct ListedUpdates {
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  const Data* updates;
  const Key* items;
  const Sizes<P>& sizes;
  Offset column;

  __device__ __forceinline__ Vector<Data, vector> operator()(int64 at) const {
    const Item<P> item(sizes, static_cast<Offset>(items[at]));
    if constexpr (P::update_slice) {
      return load<Data, vector>(updates + item.update + (P::index_slice ? 0 : column));
    } else {
      return splat<Data, vector>(updates[item.update]);
    }
  }
};

// Which row a thread works on, and its first column: `tiles` groups of `lanes` threads share a row.
template <class P, int lanes, int vector>
struct RowShare {
  using Offset = typename P::Offset;
  int64 row;
  Offset first, step;

  __device__ __forceinline__ explicit RowShare(int64 tiles) {
    const int64 group = first_in_grid() / lanes;
    row = group / tiles;
    first = static_cast<Offset>((group - row * tiles) * lanes + first_in_grid() % lanes) * vector;
    step = static_cast<Offset>(tiles) * lanes * vector;
  }
};

}  // namespace tvm_scatter
#endif
