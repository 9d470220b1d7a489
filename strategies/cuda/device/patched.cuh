// Patched: each block copies a span of the output and applies the updates that fall into it, in order.
// One launch, no atomic, and the last update wins.
//
// A block looks at all updates of the batches that its span has a part of. Those that go to the span
// are listed, in order; the first of each place combines all of that place.
#ifndef TVM_SCATTER_PATCHED
#define TVM_SCATTER_PATCHED
#include "block_scan.cuh"
#include "grid.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

// Updates that go to a block's span, at most one for each thread at a time.
template <class P, int threads>
struct PatchList {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  Offset places[threads], items[threads];
  Bits<Data> values[threads];  // of single elements, so that nobody waits for them
  bool leads[threads];         // whether no earlier one has its place

  __device__ __forceinline__ Data value(const typename P::Updates& updates, const Sizes<P>& sizes,
                                        int entry, Offset column) const {
    if (sizes.width() == 1) return bit_cast<Data>(values[entry]);
    const Offset from = Item<P>(sizes, items[entry]).update;
    return updates[P::update_slice ? from + column : from];
  }

  // Apply the first `count` updates to what lies in [from, to). For whole blocks.
  __device__ __forceinline__ void apply(Data* out, const typename P::Updates& updates,
                                        const Sizes<P>& sizes, int count, Offset from, Offset to) {
    if (threadIdx.x < count) {
      bool is_first = true;
      for (int i = 0; i < threadIdx.x; ++i) is_first &= places[i] != places[threadIdx.x];
      leads[threadIdx.x] = is_first;
    }
    __syncthreads();
    const Offset width = sizes.width(), most = min(width, to - from);
    for (Offset work = threadIdx.x; work < count * most; work += threads) {
      const int entry = static_cast<int>(work / most);
      if (!leads[entry]) continue;
      const Offset row = places[entry] * width;
      const Offset at = max(row, from) + work - entry * most;
      if (at >= min(row + width, to)) continue;
      Data combined = out[at];
      for (int i = entry; i < count; ++i)
        if (places[i] == places[entry])
          combined = combine_stored<typename P::Reduction>(combined,
                                                           value(updates, sizes, i, at - row));
      out[at] = combined;
    }
    __syncthreads();
  }
};

template <class P, int threads, int per_thread>
__device__ __forceinline__ void patch(typename P::Data* out, const typename P::Data* data,
                                      const typename P::Updates& updates,
                                      const Indices<P>& indices, const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  constexpr int vector = 16 / sizeof(Data);
  constexpr Offset kSpan = threads * per_thread * vector;
  __shared__ PatchList<P, threads> list;
  const Offset from = static_cast<Offset>(blockIdx.x) * kSpan;
  if (from >= sizes.data_size()) return;
  const Offset to = min(from + kSpan, sizes.data_size());
  const Offset width = sizes.width(), beyond = sizes.destinations();

  const bool copies = out != data;
  const bool whole = aligned<Data, vector>(out) && aligned<Data, vector>(data);
  Vector<Data, vector> held[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const Offset at = from + (i * threads + threadIdx.x) * vector;
    if (copies && whole && at + vector <= to) held[i] = load<Data, vector>(data + at);
  }

  // Updates of the batches of the span. Those of one batch follow each other.
  const Offset each = P::index_slice ? sizes.count * sizes.slice : sizes.count;
  Offset begin = 0, end = each;
  if (sizes.batch > 1) {
    const Offset batch_size = sizes.extent() * sizes.slice;
    begin = from / batch_size * each;
    end = ((to - 1) / batch_size + 1) * each;
  }
  bool copied = !copies;
  for (Offset start = begin; start < end || !copied; start += threads) {
    const Offset at = start + threadIdx.x;
    RawIndex<P> raw;
    Data value;
    if (at < end) {
      const Item<P> item(sizes, at);
      raw = read_index(indices, item.index);
      if (width == 1) value = updates[item.update];
    }
    if (!copied) {
      // Only now, when the first indices are on their way.
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        const Offset element = from + (i * threads + threadIdx.x) * vector;
        if (whole && element + vector <= to) store<Data, vector>(out + element, held[i]);
      }
      for (Offset element = (whole ? to - to % vector : from) + threadIdx.x; element < to;
           element += threads)
        out[element] = data[element];
      copied = true;
    }
    const Offset place = at < end ? place_of(at, raw, sizes) : beyond;
    const bool inside = place < beyond && place * width < to && (place + 1) * width > from;
    uint32 count;
    const uint32 entry = exclusive_in_block<threads>(inside, count);
    if (count == 0) continue;
    if (inside) {
      list.places[entry] = place;
      list.items[entry] = at;
      if (width == 1) list.values[entry] = bit_cast<Bits<Data>>(value);
    }
    __syncthreads();
    list.apply(out, updates, sizes, static_cast<int>(count), from, to);
  }
}

// The most updates, of all batches, that each thread looks through for its own elements.
constexpr int kFewUpdates = 64;

// The same for so few updates of single elements: what a thread copies it holds, and combines there,
// so that nothing is listed and each element is written once.
template <class P, int threads, int per_thread>
__device__ __forceinline__ void patch_few(typename P::Data* out, const typename P::Data* data,
                                          const typename P::Updates& updates,
                                          const Indices<P>& indices, const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using R = typename P::Reduction;
  constexpr int vector = 16 / sizeof(Data);
  constexpr Offset kSpan = threads * per_thread * vector;
  __shared__ Offset places[kFewUpdates];
  __shared__ Bits<Data> values[kFewUpdates];
  const Offset from = static_cast<Offset>(blockIdx.x) * kSpan;
  const Offset to = min(from + kSpan, sizes.data_size());
  const bool whole = aligned<Data, vector>(out) && aligned<Data, vector>(data);
  const int count = static_cast<int>(sizes.items()), thread = threadIdx.x;
  auto first_of = [&](int i) { return from + (i * threads + thread) * vector; };
  Vector<Data, vector> held[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    if (whole && first_of(i) + vector <= to) held[i] = load<Data, vector>(data + first_of(i));
  if (thread < count) {
    const Item<P> item(sizes, thread);
    const RawIndex<P> raw = read_index(indices, item.index);
    values[thread] = bit_cast<Bits<Data>>(updates[item.update]);
    places[thread] = place_of(static_cast<Offset>(thread), raw, sizes);
  }
  __syncthreads();
  for (int u = 0; u < count; ++u) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const Offset column = places[u] - first_of(i);
      if (column < 0 || column >= vector) continue;
#pragma unroll
      for (int j = 0; j < vector; ++j)
        if (j == column)
          held[i].at[j] = combine_stored<R>(held[i].at[j], bit_cast<Data>(values[u]));
    }
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    if (whole && first_of(i) + vector <= to) store<Data, vector>(out + first_of(i), held[i]);
  // What 16-byte accesses leave over: the tail, or everything where a tensor is not aligned.
  for (Offset at = (whole ? to - to % vector : from) + thread; at < to; at += threads) {
    Data value = data[at];
    for (int u = 0; u < count; ++u)
      if (places[u] == at) value = combine_stored<R>(value, bit_cast<Data>(values[u]));
    out[at] = value;
  }
}

}  // namespace tvm_scatter
#endif
