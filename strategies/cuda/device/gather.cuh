// Gather form of a plain update: every output is written once, from the update that wins there or
// from the data. Nothing that will be overwritten is copied, and the last update wins on every run.
#ifndef TVM_SCATTER_GATHER
#define TVM_SCATTER_GATHER
#include "grid.cuh"

namespace tvm_scatter {

constexpr int kNoUpdate = -1;

// The winner of each place: the last item that goes there. `winners` starts as all kNoUpdate.
template <class P>
__device__ __forceinline__ void find_winners(typename P::Offset* winners, const Indices<P>& indices,
                                             const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  for_each_place<P, 4>(indices, sizes, [&](int64 at, Offset place) {
    if (place < sizes.destinations()) atomicMax(winners + place, static_cast<Offset>(at));
  });
}

// `lanes` threads write one place, column by column; each group has `unroll` places in flight.
template <class P, int lanes, int vector, int unroll>
__device__ __forceinline__ void gather_winners(typename P::Data* out, const typename P::Data* data,
                                               const typename P::Updates& updates,
                                               const typename P::Offset* winners,
                                               const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const Offset width = sizes.width();
  const Offset places = sizes.destinations();
  const int64 thread = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 groups = static_cast<int64>(gridDim.x) * blockDim.x / lanes;
  const Offset lane = static_cast<Offset>(thread % lanes) * vector;
  for (int64 start = thread / lanes; start < places; start += groups * unroll) {
    Offset winner[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const int64 place = start + u * groups;
      winner[u] = place < places ? winners[place] : kNoUpdate;
    }
    for (Offset column = lane; column < width; column += lanes * vector) {
      Vector<Data, vector> value[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64 place = start + u * groups;
        if (place >= places) continue;
        if (winner[u] == kNoUpdate) {
          value[u] = load<Data, vector>(data + static_cast<Offset>(place) * width + column);
        } else if constexpr (P::update_slice) {
          value[u] = updates.template load<vector>(Item<P>(sizes, winner[u]).update,
                                                   P::index_slice ? 0 : column);
        } else {
          value[u] = splat<Data, vector>(updates[Item<P>(sizes, winner[u]).update]);
        }
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const int64 place = start + u * groups;
        if (place < places)
          store<Data, vector>(out + static_cast<Offset>(place) * width + column, value[u]);
      }
    }
  }
}

// One block writes its span of the columns of a row, from a row or from one element.
template <class P, int vector, int unroll>
__device__ __forceinline__ void write_span(typename P::Data* to, const typename P::Data* from,
                                           bool broadcast, const Sizes<P>& sizes,
                                           typename P::Offset span) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const Offset length = blockDim.x * vector * unroll;
  const Offset first = span * length + threadIdx.x * vector;
  Vector<Data, vector> value[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Offset column = first + u * blockDim.x * vector;
    if (column >= sizes.slice) continue;
    value[u] = broadcast ? splat<Data, vector>(*from) : load<Data, vector>(from + column);
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Offset column = first + u * blockDim.x * vector;
    if (column < sizes.slice) store<Data, vector>(to + column, value[u]);
  }
}

// One block writes one of `spans` spans of one place and finds the winner itself, by looking at every
// index: for few updates of long rows this spares both the map and its launches.
template <class P, int vector, int unroll>
__device__ __forceinline__ void gather_by_search(typename P::Data* out,
                                                 const typename P::Data* data,
                                                 const typename P::Updates& updates,
                                                 const Indices<P>& indices, const Sizes<P>& sizes,
                                                 typename P::Offset spans) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  __shared__ int winner;
  if (threadIdx.x == 0) winner = kNoUpdate;
  const Offset place = blockIdx.x / spans;
  const Offset span = blockIdx.x - place * spans;
  // The block that is launched where there are no places.
  if (sizes.batch * sizes.extent() == 0) return;
  const Offset batch = place / sizes.extent();
  const Offset wanted = place - batch * sizes.extent();
  __syncthreads();
  for (Offset k = threadIdx.x; k < sizes.count; k += blockDim.x) {
    Offset destination;
    const Offset entry = P::index_batch ? batch * sizes.count + k : k;
    if (find_destination(sizes, indices, entry, destination) && destination == wanted)
      atomicMax(&winner, static_cast<int>(k));
  }
  __syncthreads();
  const Data* from = data + place * sizes.slice;
  bool broadcast = false;
  if (winner != kNoUpdate) {
    const Item<P> item(sizes, batch * sizes.count + winner);
    from = updates.first + item.update;
    broadcast = !P::update_slice;
  }
  write_span<P, vector, unroll>(out + place * sizes.slice, from, broadcast, sizes, span);
}

// In place one block writes one of `spans` spans of one update, unless a later update goes to the same
// place. What no update goes to is there already.
template <class P, int vector, int unroll>
__device__ __forceinline__ void write_last(typename P::Data* out,
                                           const typename P::Updates& updates,
                                           const Indices<P>& indices, const Sizes<P>& sizes,
                                           typename P::Offset spans) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  __shared__ int later;
  if (threadIdx.x == 0) later = 0;
  __syncthreads();
  const Offset number = blockIdx.x / spans;
  const Offset span = blockIdx.x - number * spans;
  if (number >= sizes.batch * sizes.count) return;
  const Item<P> item(sizes, number);
  const Offset k = number - item.batch * sizes.count;
  Offset destination;
  if (!find_destination(sizes, indices, item.index, destination)) return;
  for (Offset other = k + 1 + threadIdx.x; other < sizes.count; other += blockDim.x) {
    Offset taken;
    if (find_destination(sizes, indices, item.index + (other - k), taken) && taken == destination)
      later = 1;
  }
  __syncthreads();
  if (later) return;
  const Data* const from = updates.first + item.update;
  write_span<P, vector, unroll>(out + item.place(sizes, destination) * sizes.slice, from,
                                !P::update_slice, sizes, span);
}

}  // namespace tvm_scatter
#endif
