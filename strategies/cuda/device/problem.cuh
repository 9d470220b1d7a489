// How a problem describes itself to the device routines, and how an update finds its destination.
//
// Each kernel is a template over a generated struct P that carries what is known at compile time:
//   Data, Index, Offset            types of elements, of indices, and of index arithmetic
//   Updates                        how updates are read: StoredUpdates, say
//   Output                         how the result is written: StoredOutput, say
//   Reduction                      one of reduction.cuh
//   components, interleaved        index tensors that combine into one destination, and how
//   index_batch, index_slice       what the index varies over
//   update_batch, _count, _slice   what the updates vary over
//   wrap, check                    negative indices wrap; out-of-bounds updates are dropped
//   signals_drops                  and the host is told of them
//   counts_completion              and blocks tell it that they have resolved their indices
//   include_self, unique
//   softmax                        updates are weighted by the softmax of their logits
//   filled                         the data are fill() everywhere, and not in memory
//   start(), fill()                the identity of the reduction; a number
#ifndef TVM_SCATTER_PROBLEM
#define TVM_SCATTER_PROBLEM
#include "common.cuh"

namespace tvm_scatter {

// Updates that stand in memory; other types are read the same way. An element is named by its offset
// in the tensor of the updates, or by the offset of its row and its column. A vector is of one row.
template <class T>
struct StoredUpdates {
  // Whether `find` looks something up for a row before the row itself is read.
  static constexpr bool finds = false;
  // Whether `own` holds something for a destination, and `owned` reads an update with it.
  static constexpr bool owns = false;
  static constexpr int summed_columns = 0;
  template <int count>
  struct Own {};
  // What lists of updates may carry of each: see codegen/carried.py.
  struct Carried {};
  template <class Offset>
  using Found = Offset;
  const T* first;

  template <int count>
  __device__ __forceinline__ bool aligned() const {
    return tvm_scatter::aligned<T, count>(first);
  }
  template <class Offset>
  __device__ __forceinline__ T operator[](Offset at) const {
    return first[at];
  }
  template <int count, class Offset>
  __device__ __forceinline__ Vector<T, count> load(Offset row, Offset column = 0) const {
    return tvm_scatter::load<T, count>(first + row + column);
  }
  template <int count, class Offset>
  __device__ __forceinline__ Vector<T, count> load_once(Offset row, Offset column = 0) const {
    return tvm_scatter::load_once<T, count>(first + row + column);
  }
  // An element that is read nowhere else, or there at the same time.
  template <class Offset>
  __device__ __forceinline__ T once(Offset at) const {
    return load_once<1>(at).at[0];
  }
  // Elements side by side, which may be of several rows.
  template <int count, bool once, class Offset>
  __device__ __forceinline__ Vector<T, count> neighbours(Offset at) const {
    return once ? load_once<count>(at) : load<count>(at);
  }
  // What is the same for an entry of the index in all lines that share it: nothing.
  struct Entry {};
  template <class Offset>
  __device__ __forceinline__ Entry entry(Offset) const {
    return Entry{};
  }
  template <class Offset>
  __device__ __forceinline__ T at_entry(const Entry&, Offset row) const {
    return first[row];
  }
};

// A result that is written as it is; other types compute what is written in its place. An element is
// named by its offset in the tensor.
template <class T>
struct StoredOutput {
  static constexpr bool finishes = false;
  T* first;

  template <int count>
  __device__ __forceinline__ bool aligned() const {
    return tvm_scatter::aligned<T, count>(first);
  }
  template <int count>
  __device__ __forceinline__ bool aligned_at(int64 at) const {
    return tvm_scatter::aligned<T, count>(first + at);
  }
  // Whether these data stand in the output already, where a place without updates keeps its own.
  __device__ __forceinline__ bool holds(const T* data) const { return first == data; }
  template <class Offset, int count>
  __device__ __forceinline__ void store(int64 at, const Vector<T, count>& value) const {
    tvm_scatter::store<T, count>(first + at, value);
  }
};

template <class P>
struct Sizes {
  using Offset = typename P::Offset;
  Offset batch, count, slice;
  Offset extents[P::components];
  volatile int64* dropped = nullptr;  // words of the host
  volatile int64* completed = nullptr;
  int64 call = 0;  // the flag once all indices are resolved
  uint32* blocks_done = nullptr;

  __device__ __forceinline__ Offset extent() const {
    Offset product = 1;
#pragma unroll
    for (int j = 0; j < P::components; ++j) product *= extents[j];
    return product;
  }
  // Distinct index reads, and the contiguous elements that each of them moves.
  __device__ __forceinline__ Offset items() const {
    return P::index_slice ? batch * count * slice : batch * count;
  }
  __device__ __forceinline__ Offset width() const { return P::index_slice ? 1 : slice; }
  // Places that an item can go to; each is `width()` elements wide.
  __device__ __forceinline__ Offset destinations() const {
    return P::index_slice ? batch * extent() * slice : batch * extent();
  }
  __device__ __forceinline__ Offset data_size() const { return batch * extent() * slice; }
};

// The data at a position.
template <class P, int vector>
__device__ __forceinline__ Vector<typename P::Data, vector> data_at(const typename P::Data* data,
                                                                    int64 at) {
  if constexpr (P::filled) {
    return splat<typename P::Data, vector>(P::fill());
  } else {
    return load<typename P::Data, vector>(data + at);
  }
}

// Whether an accumulated value is what it was before anything was combined into it.
template <class P>
__device__ __forceinline__ bool is_start(Accumulate<typename P::Data> value) {
  using Word = Bits<Accumulate<typename P::Data>>;
  return bit_cast<Word>(value) == bit_cast<Word>(widen(P::start()));
}

template <class P>
struct Indices {
  const typename P::Index* of[P::interleaved ? 1 : P::components];
};

// Where the parts of one item stand.
template <class P>
struct Item {
  using Offset = typename P::Offset;
  Offset index;   // entry of the index tensors
  Offset update;  // first element of the updates
  Offset batch, slice;

  __device__ __forceinline__ Item(const Sizes<P>& sizes, Offset item) {
    slice = 0;
    Offset row = item;
    if constexpr (P::index_slice) {
      row = item / sizes.slice;
      slice = item - row * sizes.slice;
    }
    batch = sizes.batch == 1 ? 0 : row / sizes.count;
    const Offset count = row - batch * sizes.count;
    index = P::index_batch ? row : count;
    if constexpr (P::index_slice) index = index * sizes.slice + slice;
    update = P::update_batch ? batch : 0;
    if constexpr (P::update_count) update = update * sizes.count + count;
    if constexpr (P::update_slice) update = update * sizes.slice + slice;
  }

  // The place that `destination` along the axis is, for this item.
  __device__ __forceinline__ Offset place(const Sizes<P>& sizes, Offset destination) const {
    const Offset row = batch * sizes.extent() + destination;
    return P::index_slice ? row * sizes.slice + slice : row;
  }
};

// The index of each component for one item, as it was read. Reading and checking are two steps, so
// that a kernel can have the reads of several items in flight before it branches on any. What is read
// `once` gives way first in the caches.
template <class P>
struct RawIndex {
  typename P::Index of[P::components];
};

template <class P, bool once = false>
__device__ __forceinline__ RawIndex<P> read_index(const Indices<P>& indices,
                                                  typename P::Offset entry) {
  using Index = typename P::Index;
  RawIndex<P> raw;
#pragma unroll
  for (int j = 0; j < P::components; ++j) {
    const Index* const from = P::interleaved ? indices.of[0] + entry * P::components + j
                                             : indices.of[P::interleaved ? 0 : j] + entry;
    raw.of[j] = once ? load_once<Index, 1>(from).at[0] : *from;
  }
  return raw;
}

// The destination that an index names; false if it is out of bounds, which is signalled unless
// somebody has done so (`signalled`).
template <class P>
__device__ __forceinline__ bool resolve(const Sizes<P>& sizes, const RawIndex<P>& raw,
                                        typename P::Offset& destination, bool signalled = false) {
  using Offset = typename P::Offset;
  constexpr bool narrow_index = sizeof(typename P::Index) < 4 || same<typename P::Index, int>;
  using Wide = typename If<narrow_index && sizeof(Offset) == 4, int, int64>::type;
  destination = 0;
#pragma unroll
  for (int j = 0; j < P::components; ++j) {
    Wide index = static_cast<Wide>(raw.of[j]);
    const Wide extent = sizes.extents[j];
    if (P::wrap && index < 0) index += extent;
    if (P::check && (index < 0 || index >= extent)) {
      if (P::signals_drops && !signalled) {
        *sizes.dropped = 1;
        // Here, so that blocks without a bad index need not wait for what they have written.
        if constexpr (P::counts_completion) __threadfence_system();
      }
      return false;
    }
    destination = destination * static_cast<Offset>(extent) + static_cast<Offset>(index);
  }
  return true;
}

// What part of a scatter's work is the last, whose indices are looked at before it begins if the host
// is to hear of them: while it is done, the flag is on its way.
constexpr int kAhead = 6;

// For one thread of each of so many blocks, when its block has signalled all drops that it will. The
// last of them raises the flag, and leaves the counter as it was.
template <class P>
__device__ __forceinline__ void count_completion(const Sizes<P>& sizes, uint32 blocks) {
  if (atomicInc(sizes.blocks_done, blocks - 1) != blocks - 1) return;
  __threadfence_system();
  *sizes.completed = sizes.call;
}

// Both steps, for a kernel with one item in flight.
template <class P>
__device__ __forceinline__ bool find_destination(const Sizes<P>& sizes, const Indices<P>& indices,
                                                 typename P::Offset entry,
                                                 typename P::Offset& destination) {
  return resolve(sizes, read_index(indices, entry), destination);
}

}  // namespace tvm_scatter
#endif
