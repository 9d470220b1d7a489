// Private bins: the whole output stands in the shared memory of every block, several times over.
#ifndef TVM_SCATTER_BINS
#define TVM_SCATTER_BINS
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// Whether neighbouring items are neighbours in the index tensor and in the updates, where besides
// there is one batch and one element to an item.
template <class P>
constexpr bool is_flat =
    P::components == 1 && P::update_count && (!P::index_slice || P::update_slice);

// Bytes of the number of warps that have seen their indices, rounded up to what bins are aligned to.
constexpr int kCounterBytes = 16;

// Where the bins begin in shared memory: behind that number, which is there if the host is to hear
// of it; shared_bins.py makes room for it.
template <class P>
constexpr int bins_begin = P::counts_completion ? kCounterBytes : 0;

// Calls `visit(bin, value)` for every `threads`-th pack of the updates in [from, to) from the
// `thread`-th one on, with `unroll` updates read before any is visited. A pack of neighbours is one
// access where memory is aligned to it; who visits what, and in what order, does not depend on that.
// Where what is read gives way first in the caches (`once`), many warps gain and one warp to a block
// loses. Where no branch is between reads (`together`), blocks that are alone on a multiprocessor gain,
// and others lose. Looking `ahead`, it only reads the indices, which stay there, and visits nothing;
// afterwards drops among them are `signalled`.
template <class P, int unroll, int pack, bool once, bool together, class Visit>
__device__ __forceinline__ void for_each_pack(const typename P::Updates& updates,
                                              const Indices<P>& indices, const Sizes<P>& sizes,
                                              typename P::Offset from, typename P::Offset to,
                                              int thread, int threads, bool ahead, bool signalled,
                                              Visit visit) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Index = typename P::Index;
  const Offset width = sizes.width();
  const Offset step = static_cast<Offset>(threads) * pack;
  const bool whole =
      pack > 1 && aligned<Index, pack>(indices.of[0]) && updates.template aligned<pack>();
  constexpr int turns = unroll / pack;
  for (Offset first = from + static_cast<Offset>(thread) * pack; first < to;
       first += step * turns) {
    RawIndex<P> raw[turns][pack];
    Data value[turns][pack];
    int bin[turns][pack];
    auto read_whole = [&](int t) {
      const Offset begin = first + t * step;
      const auto some = once && !ahead ? load_once<Index, pack>(indices.of[0] + begin)
                                       : load<Index, pack>(indices.of[0] + begin);
#pragma unroll
      for (int i = 0; i < pack; ++i) raw[t][i].of[0] = some.at[i];
      if (ahead) return;
      const auto values = updates.template neighbours<pack, once>(begin);
#pragma unroll
      for (int i = 0; i < pack; ++i) value[t][i] = values.at[i];
    };
    auto read_each = [&](int t) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        const Offset at = first + t * step + i;
        if (at >= to) continue;
        const Offset index = width == 1 ? at : at / width;
        const Item<P> item(sizes, index);
        raw[t][i] = read_index(indices, item.index);
        if (ahead) continue;
        value[t][i] = updates[P::update_slice && !P::index_slice ? item.update + at - index * width
                                                                 : item.update];
      }
    };
    if (together && whole && first + (turns - 1) * step + pack <= to) {
#pragma unroll
      for (int t = 0; t < turns; ++t) read_whole(t);
    } else {
#pragma unroll
      for (int t = 0; t < turns; ++t) {
        if (whole && first + t * step + pack <= to) {
          read_whole(t);
        } else {
          read_each(t);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < turns; ++t) {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        const Offset at = first + t * step + i;
        bin[t][i] = -1;
        if (at >= to) continue;
        const Offset index = width == 1 ? at : at / width;
        Offset destination;
        if (resolve(sizes, raw[t][i], destination, signalled))
          bin[t][i] = static_cast<int>(Item<P>(sizes, index).place(sizes, destination) * width + at -
                                       index * width);
      }
    }
    if (ahead) continue;
#pragma unroll
    for (int t = 0; t < turns; ++t) {
#pragma unroll
      for (int i = 0; i < pack; ++i)
        if (bin[t][i] >= 0) visit(bin[t][i], value[t][i]);
    }
  }
}

// All packs; the indices of the last are looked at before any of these is visited.
template <class P, int unroll, int pack, bool once, bool together, class Visit>
__device__ __forceinline__ void for_all_packs(const typename P::Updates& updates,
                                              const Indices<P>& indices, const Sizes<P>& sizes,
                                              int thread, int threads, char* shared, Visit visit) {
  using Offset = typename P::Offset;
  const Offset total = sizes.items() * sizes.width();
  if constexpr (P::counts_completion) {
    uint32* const warps_seen = reinterpret_cast<uint32*>(shared);
    if (threadIdx.x == 0) *warps_seen = 0;
    __syncthreads();
    const Offset turn = static_cast<Offset>(threads) * unroll;
    const Offset head = total / turn * (kAhead - 1) / kAhead * turn;
    // A loop, because three copies of what it does take more registers than there are.
    enum { first, ahead, last };
#pragma unroll 1
    for (int part = first; part <= last; ++part) {
      for_each_pack<P, unroll, pack, once, together>(
          updates, indices, sizes, part == first ? Offset(0) : head, part == first ? head : total,
          thread, threads, part == ahead, part == last, visit);
      if (part != ahead) continue;
      // No barrier: a warp goes on at once, and the last one of the block speaks for it.
      __syncwarp();
      if (threadIdx.x % kWarp != 0) continue;
      if (atomicAdd(warps_seen, 1u) == blockDim.x / kWarp - 1)
        count_completion(sizes, static_cast<uint32>(gridDim.x));
    }
  } else {
    for_each_pack<P, unroll, pack, once, together>(updates, indices, sizes, Offset(0), total, thread,
                                                   threads, false, false, visit);
  }
}

template <class P, int unroll, bool once, bool together, class Visit>
__device__ __forceinline__ void for_each_update(const typename P::Updates& updates,
                                                const Indices<P>& indices, const Sizes<P>& sizes,
                                                int thread, int threads, char* shared,
                                                Visit visit) {
  constexpr int pack = 16 / sizeof(typename P::Index) < 4 ? 16 / sizeof(typename P::Index) : 4;
  if (is_flat<P> && sizes.batch == 1 && sizes.width() == 1) {
    for_all_packs<P, unroll, is_flat<P> ? pack : 1, once, together>(updates, indices, sizes, thread,
                                                                   threads, shared, visit);
  } else {
    for_all_packs<P, unroll, 1, once, together>(updates, indices, sizes, thread, threads, shared,
                                                visit);
  }
}

// Combine `copies` copies of the bins and leave the result as this block's column of `partials`, in
// which the blocks' results for one bin are neighbours.
template <class P, int copies>
__device__ __forceinline__ void merge_copies(Accumulate<typename P::Data>* partials,
                                             const Accumulate<typename P::Data>* bins, int size) {
  using Wide = Accumulate<typename P::Data>;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    Wide sum = widen(P::start());
    // Each thread begins at another copy, or all would read one bank; the order is fixed all the
    // same.
#pragma unroll
    for (int c = 0; c < copies; ++c)
      sum = P::Reduction::combine(sum, bins[i * copies + (c + threadIdx.x) % copies]);
    partials[static_cast<int64>(i) * gridDim.x + blockIdx.x] = sum;
  }
}

// A block reduces its share of the updates into `copies` copies of the bins and merges these. With 32
// copies each lane has its own, in its own bank: lanes never meet, however the indices repeat.
template <class P, int copies, int unroll>
__device__ __forceinline__ void fill_bins(Accumulate<typename P::Data>* partials,
                                          const typename P::Updates& updates,
                                          const Indices<P>& indices, const Sizes<P>& sizes,
                                          char* shared) {
  using Wide = Accumulate<typename P::Data>;
  Wide* const bins = reinterpret_cast<Wide*>(shared + bins_begin<P>);
  const int size = static_cast<int>(sizes.data_size());
  for (int i = threadIdx.x; i < size * copies; i += blockDim.x) bins[i] = widen(P::start());
  __syncthreads();
  const int copy = threadIdx.x % copies;
  for_each_update<P, unroll, true, false>(
      updates, indices, sizes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x,
      shared,
      [&](int bin, typename P::Data value) {
        atomic_combine<typename P::Reduction, Wide>(bins + bin * copies + copy, widen(value));
      });
  __syncthreads();
  merge_copies<P, copies>(partials, bins, size);
}

// One warp to a block, and bins for each lane: no two threads ever write one address, so nothing is
// atomic and the order of every sum is fixed by the launch. As a case of `fill_bins` it took a sixth
// longer.
template <class P, int unroll>
__device__ __forceinline__ void fill_lane_bins(Accumulate<typename P::Data>* partials,
                                               const typename P::Updates& updates,
                                               const Indices<P>& indices, const Sizes<P>& sizes,
                                               char* shared) {
  using Wide = Accumulate<typename P::Data>;
  Wide* const bins = reinterpret_cast<Wide*>(shared + bins_begin<P>);
  const int size = static_cast<int>(sizes.data_size());
  const int lane = threadIdx.x;
  for (int i = 0; i < size; ++i) bins[i * kWarp + lane] = widen(P::start());
  for_each_update<P, unroll, false, true>(
      updates, indices, sizes, blockIdx.x * kWarp + lane, gridDim.x * kWarp, shared,
      [&](int bin, typename P::Data value) {
        Wide* const mine = bins + bin * kWarp + lane;
        *mine = P::Reduction::combine(*mine, widen(value));
      });
  __syncwarp();
  merge_copies<P, kWarp>(partials, bins, size);
}

// One warp for each bin combines the blocks' partial results with what stands there.
template <class P>
__device__ __forceinline__ void merge_bins(typename P::Data* out, const typename P::Data* base,
                                           const Accumulate<typename P::Data>* partials,
                                           int rows, const Sizes<P>& sizes) {
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const int size = static_cast<int>(sizes.data_size());
  const int bin = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (bin >= size) return;
  Wide sum = widen(P::start());
  for (int row = lane; row < rows; row += kWarp)
    sum = R::combine(sum, partials[static_cast<int64>(bin) * rows + row]);
  sum = combine_lanes<R>(sum);
  if (lane != 0) return;
  // Arithmetic with nothing may change the bits of a NaN, or of a denormal.
  const bool untouched = is_float<Data> && is_start<P>(sum);
  out[bin] = untouched ? base[bin] : combine_into<R>(base[bin], sum);
}

}  // namespace tvm_scatter
#endif
