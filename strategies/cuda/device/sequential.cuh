// Sequential: one thread for each line along the axis; updates in order, so that the last one wins.
#ifndef TVM_SCATTER_SEQUENTIAL
#define TVM_SCATTER_SEQUENTIAL
#include "problem.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

// A block owns `lines` adjacent lines. With `copies` it first copies them, all threads together.
template <class P, bool copies>
__device__ __forceinline__ void sequential(typename P::Data* out, const typename P::Data* data,
                                           const typename P::Updates& updates,
                                           const Indices<P>& indices, const Sizes<P>& sizes,
                                           int lines) {
  const int thread = threadIdx.x, threads = blockDim.x;
  using Offset = typename P::Offset;
  const int64 all_lines = static_cast<int64>(sizes.batch) * sizes.slice;
  const int64 first_line = static_cast<int64>(blockIdx.x) * lines;
  const int owned = static_cast<int>(min(static_cast<int64>(lines), all_lines - first_line));
  const Offset extent = sizes.extent();
  if constexpr (copies) {
    const int64 total = static_cast<int64>(owned) * extent;
    for (int64 i = thread; i < total; i += threads) {
      // Neighbouring threads take neighbouring addresses: along the slice if there is one.
      const int64 line = sizes.slice == 1 ? i / extent : i % owned;
      const int64 n = sizes.slice == 1 ? i - line * extent : i / owned;
      const int64 b = (first_line + line) / sizes.slice, s = (first_line + line) - b * sizes.slice;
      const int64 at = (b * extent + n) * sizes.slice + s;
      out[at] = data[at];
    }
    __syncthreads();
  }
  for (int line = thread; line < owned; line += threads) {
    const Offset b = static_cast<Offset>((first_line + line) / sizes.slice);
    const Offset s = static_cast<Offset>(first_line + line - static_cast<int64>(b) * sizes.slice);
    for (Offset k = 0; k < sizes.count; ++k) {
      const Offset row = b * sizes.count + k;
      const Item<P> item(sizes, P::index_slice ? row * sizes.slice + s : row);
      Offset destination;
      if (!find_destination(sizes, indices, item.index, destination)) continue;
      const int64 at = static_cast<int64>(item.place(sizes, destination)) * sizes.width() +
                       (P::index_slice ? 0 : s);
      const typename P::Data update =
          updates[P::index_slice || !P::update_slice ? item.update : item.update + s];
      out[at] = combine_stored<typename P::Reduction>(out[at], update);
    }
  }
}

}  // namespace tvm_scatter
#endif
