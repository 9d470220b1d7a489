// Row resident: what one batch scatters into is held in shared memory, read once and written once.
#ifndef TVM_SCATTER_RESIDENT
#define TVM_SCATTER_RESIDENT
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// Looks at `total` indices for the host to hear of them; `entry_at` says where they are.
template <class P, int unroll, class EntryAt>
__device__ __forceinline__ void look_at_indices(const Indices<P>& indices, const Sizes<P>& sizes,
                                                typename P::Offset total, EntryAt entry_at) {
  using Offset = typename P::Offset;
  for (Offset start = threadIdx.x; start < total; start += blockDim.x * unroll) {
    RawIndex<P> raw[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = start + u * static_cast<Offset>(blockDim.x);
      if (at < total) raw[u] = read_index(indices, entry_at(at));
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      Offset destination;
      if (start + u * static_cast<Offset>(blockDim.x) < total) resolve(sizes, raw[u], destination);
    }
  }
}

// A block holds `tile` elements of one batch's slab of extent x slice; a slab that is larger is cut
// into tiles, and every block of it looks at all indices of the batch. Those of the last blocks are
// looked at by as many blocks before them.
template <class P, int unroll>
__device__ __forceinline__ void resident(const typename P::Output& output,
                                         const typename P::Data* data,
                                         const typename P::Updates& updates,
                                         const Indices<P>& indices, const Sizes<P>& sizes,
                                         char* shared, int tile, typename P::Offset tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const held = reinterpret_cast<Wide*>(shared);
  const Offset batch = blockIdx.x / tiles;
  if (batch >= sizes.batch) return;  // one block is launched even for no batch at all
  const Offset blocks = gridDim.x, ahead = gridDim.x / kAhead, other = blockIdx.x + ahead;
  const bool signalled = P::counts_completion && other >= blocks;
  const Offset slab = sizes.extent() * sizes.slice;
  const Offset begin = (blockIdx.x - batch * tiles) * tile;
  const int owned = static_cast<int>(min(static_cast<Offset>(tile), slab - begin));
  const int64 first = batch * slab + begin;
  const Data* const from = data + first;
  constexpr int vector = 16 / sizeof(Data);
  const bool whole = owned % vector == 0 && (P::filled || aligned<Data, vector>(from)) &&
                     output.template aligned_at<vector>(first);

  if (whole) {
    for (int i = threadIdx.x * vector; i < owned; i += blockDim.x * vector) {
      const auto value = widen_bits(data_at<P, vector>(from, i));
#pragma unroll
      for (int j = 0; j < vector; ++j) held[i + j] = value.at[j];
    }
  } else {
    for (int i = threadIdx.x; i < owned; i += blockDim.x)
      held[i] = widen_bits(data_at<P, 1>(from, i).at[0]);
  }
  __syncthreads();

  const Offset total = sizes.count * sizes.slice;
  auto item_of = [&](Offset batch, Offset at) {
    const Offset k = sizes.slice == 1 ? at : at / sizes.slice;
    const Offset row = batch * sizes.count + k;
    return Item<P>(sizes, P::index_slice ? row * sizes.slice + at - k * sizes.slice : row);
  };
  auto item_at = [&](Offset at) { return item_of(batch, at); };
  auto column_at = [&](Offset at) { return sizes.slice == 1 ? 0 : at % sizes.slice; };
  // Where an update goes in `held`; negative if it is dropped or for another block.
  auto place_at = [&](Offset at, const RawIndex<P>& raw) -> Offset {
    Offset destination;
    if (!resolve(sizes, raw, destination, signalled)) return -1;
    const Offset place = destination * sizes.slice + column_at(at) - begin;
    return place < owned ? place : -1;
  };
  if constexpr (!P::include_self && !same<R, Update>) {
    for (Offset at = threadIdx.x; at < total; at += blockDim.x) {
      const Offset place = place_at(at, read_index(indices, item_at(at).index));
      if (place >= 0) held[place] = widen(P::start());
    }
    __syncthreads();
  }
  for (Offset start = threadIdx.x; start < total; start += blockDim.x * unroll) {
    RawIndex<P> raw[unroll];
    Data value[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = start + u * static_cast<Offset>(blockDim.x);
      if (at >= total) continue;
      const Item<P> item = item_at(at);
      raw[u] = read_index(indices, item.index);
      value[u] =
          updates[P::index_slice || !P::update_slice ? item.update : item.update + column_at(at)];
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = start + u * static_cast<Offset>(blockDim.x);
      if (at >= total) continue;
      const Offset place = place_at(at, raw[u]);
      if (place >= 0) shared_combine<R, Wide>(held + place, widen(value[u]));
    }
  }
  if constexpr (P::counts_completion) {
    if (other < blocks && other >= blocks - ahead)
      look_at_indices<P, unroll>(indices, sizes, total,
                                 [&](Offset at) { return item_of(other / tiles, at).index; });
  }
  __syncthreads();
  if constexpr (P::counts_completion) {
    if (other < blocks && threadIdx.x == 0)
      count_completion(sizes, static_cast<uint32>(blocks - ahead));
  }
  if (whole) {
    for (int i = threadIdx.x * vector; i < owned; i += blockDim.x * vector) {
      Vector<Wide, vector> value;
#pragma unroll
      for (int j = 0; j < vector; ++j) value.at[j] = held[i + j];
      output.template store<Offset>(first + i, narrow_bits<Data, vector>(value));
    }
  } else {
    for (int i = threadIdx.x; i < owned; i += blockDim.x)
      output.template store<Offset>(first + i, Vector<Data, 1>{{narrow_bits<Data>(held[i])}});
  }
}

}  // namespace tvm_scatter
#endif
