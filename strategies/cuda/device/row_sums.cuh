// Adding up rows of updates that a list names.
#ifndef TVM_SCATTER_ROW_SUMS
#define TVM_SCATTER_ROW_SUMS
#include "softmax.cuh"
#include "stages.cuh"

namespace tvm_scatter {

template <class R, class Wide, int vector>
__device__ __forceinline__ Vector<Wide, vector> combine_vectors(
    const Vector<Wide, vector>& old, const Vector<Wide, vector>& update) {
  Vector<Wide, vector> result;
#pragma unroll
  for (int i = 0; i < vector; ++i) result.at[i] = R::combine(old.at[i], update.at[i]);
  return result;
}

// The type of what a function returns by value or by reference.
template <class T>
__device__ T copy_of(const T&);

// A number that is known to the compiler.
template <uint32 number>
struct Known {
  static constexpr uint32 value = number;
};

// As `for_each_few`, of rows that are computed from what is read. After a branch a row would be waited
// for before the next one is read, so the last rows are read together: some of them again, if need be.
template <int in_flight, class Rows, class Item, class Held, class Visit>
__device__ __forceinline__ void visit_computed(uint32 count, const Rows& rows,
                                               Item (&item)[in_flight], Held (&held)[in_flight],
                                               Visit visit) {
  auto find = [&](uint32 start) {
    if (start >= count) return;
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u) item[u] = rows.item(min(start + u, count - 1));
  };
  find(0);
  uint32 start = 0;
  for (; start + in_flight <= count; start += in_flight) {
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u) held[u] = rows.read(item[u]);
    find(start + in_flight);
    visit(start, held, Known<in_flight>{}, in_flight);
  }
  if (start >= count) return;
#pragma unroll
  for (uint32 u = 0; u < in_flight - 1; ++u) held[u] = rows.read(item[u]);
  visit(start, held, Known<in_flight - 1>{}, count - start);
}

// Vectors in flight at a time: more would take registers, and with them threads, away.
constexpr uint32 kInFlight = 4;

// Visit `count` vectors in order, some at a time, whose loads are in flight together: `rows.item(i)`
// names the i-th, and `rows.read(item)` reads it. `visit(start, held, most, some)` has what was read of
// `some` vectors, at most `most`; `rows.complete` makes a vector of it. What is read is held as it is
// stored, so that 16-bit types take half the registers; the next items are read while the vectors of
// these are on their way.
template <class Rows, class Visit>
__device__ __forceinline__ void for_each_few(uint32 count, const Rows& rows, Visit visit) {
  constexpr uint32 in_flight = Rows::in_flight;
  decltype(rows.item(0u)) item[in_flight];
  decltype(rows.read(item[0])) held[in_flight];
  auto find = [&](uint32 start) {
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u)
      if (start + u < count) item[u] = rows.item(start + u);
  };
  if constexpr (Rows::computes) {
    visit_computed(count, rows, item, held, visit);
    return;
  }
  find(0);
  uint32 start = 0;
  for (; start + in_flight <= count; start += in_flight) {
#pragma unroll
    for (uint32 u = 0; u < in_flight; ++u) held[u] = rows.read(item[u]);
    find(start + in_flight);
    visit(start, held, Known<in_flight>{}, in_flight);
  }
#pragma unroll
  for (uint32 u = 0; u < in_flight - 1; ++u)
    if (start + u < count) held[u] = rows.read(item[u]);
  visit(start, held, Known<in_flight - 1>{}, start < count ? count - start : 0);
}

// Visit them one by one.
template <class Rows, class Visit>
__device__ __forceinline__ void for_each_row(uint32 count, const Rows& rows, Visit visit) {
  for_each_few(count, rows, [&](uint32 start, const auto& held, auto most, uint32 some) {
#pragma unroll
    for (uint32 u = 0; u < decltype(most)::value; ++u)
      if (u < some) visit(start + u, rows.complete(held[u]));
  });
}

// The sum of rows of updates, in one column of vectors, and how many numbers it has for each element.
template <class P, int vector>
using RowSum =
    typename If<P::softmax, SoftmaxSum<Accumulate<typename P::Data>, vector>,
                Vector<Accumulate<typename P::Data>, vector>>::type;
template <class P>
constexpr int kSumSize = P::softmax ? 3 : 1;

template <class P, int vector>
__device__ __forceinline__ RowSum<P, vector> sum_of_none() {
  using Wide = Accumulate<typename P::Data>;
  if constexpr (P::softmax) {
    return softmax_of_none<Wide, vector>();
  } else {
    return splat<Wide, vector>(widen(P::start()));
  }
}

template <class R, class Wide, int vector, class T>
__device__ __forceinline__ void add_row(Vector<Wide, vector>& sum, const Vector<T, vector>& row) {
  sum = combine_vectors<R>(sum, widen(row));
}

// Whether rows are added some at a time.
template <class Row>
constexpr bool kAddsFew = false;
template <class Data, int vector>
constexpr bool kAddsFew<SoftmaxUpdate<Data, vector>> = is_half<Data>;

// Combine `count` rows into `sum`, in order.
template <class R, class Sum, class Rows>
__device__ __forceinline__ void combine_run(Sum& sum, uint32 count, const Rows& rows) {
  using Row = decltype(copy_of(rows.complete(rows.read(rows.item(0u)))));
  if constexpr (kAddsFew<Row>) {
    for_each_few(count, rows, [&](uint32, const auto& held, auto most, uint32 some) {
      Row few[decltype(most)::value];
#pragma unroll
      for (uint32 u = 0; u < decltype(most)::value; ++u)
        if (Rows::computes || u < some) few[u] = rows.complete(held[u]);
      add_few<Rows::computes>(sum, few, some);
    });
  } else {
    for_each_row(count, rows, [&](uint32, const auto& row) { add_row<R>(sum, row); });
  }
}

// A list as `ListedUpdates` has it: a pointer to keys, or an object that is indexed like one.
template <class Key>
struct ListOf {
  using Type = const Key*;
};

// Entries that others name by their numbers.
template <class Entry>
struct Numbered {
  const Entry* entries;
  const uint32* numbers;

  __device__ __forceinline__ const Entry& operator[](uint32 at) const {
    return entries[numbers[at]];
  }
};
template <class Entry>
struct ListOf<Numbered<Entry>> {
  using Type = Numbered<Entry>;
};

// Updates that stand in the order of a list: an entry is its own number.
struct Itself {};
template <>
struct ListOf<Itself> {
  struct Type {
    int64 first = 0;

    __device__ __forceinline__ int64 operator[](int64 at) const { return first + at; }
    __device__ __forceinline__ Type operator+(int64 more) const { return {first + more}; }
  };
};

// What the entries of a list are.
template <class Entry>
__device__ Entry entry_of(const Entry*);
__device__ Itself entry_of(ListOf<Itself>::Type);

// The updates of a list of items, in one column of vectors. `once` says that they are read nowhere
// else, so that they give way first in the caches; `at_once`, that they are computed as they are read.
template <class P, class Key, int vector, bool once = false, bool at_once = false>
struct ListedUpdates {
  static constexpr bool computes = false;
  static constexpr uint32 in_flight = kInFlight;
  static constexpr bool reads_first = P::update_slice && P::Updates::finds && !at_once;
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  using Found = typename P::Updates::template Found<Offset>;
  typename P::Updates updates;
  typename ListOf<Key>::Type items;
  const Sizes<P>& sizes;
  Offset column;

  // What is read is computed with only here: a computation waits for what it needs, and no other read
  // is begun behind it before.
  template <class Read>
  __device__ __forceinline__ decltype(auto) complete(const Read& read) const {
    if constexpr (reads_first) {
      return updates.template computed<vector>(read, P::index_slice ? Offset(0) : column);
    } else {
      return (read);
    }
  }
  __device__ __forceinline__ Found item(uint32 at) const {
    if constexpr (P::Updates::finds) {
      return updates.find(Item<P>(sizes, static_cast<Offset>(items[at])).update);
    } else {
      return Item<P>(sizes, static_cast<Offset>(items[at])).update;
    }
  }
  __device__ __forceinline__ auto read(Found update) const {
    if constexpr (P::update_slice) {
      const Offset at = P::index_slice ? 0 : column;
      // Shorter accesses share what the memory delivers with others.
      constexpr bool alone = P::update_batch && P::update_count && sizeof(Data) * vector == 16;
      if constexpr (reads_first) {
        return updates.template fetch<vector>(update, at);
      } else {
        return once && alone ? updates.template load_once<vector>(update, at)
                             : updates.template load<vector>(update, at);
      }
    } else {
      return splat<Data, vector>(updates[update]);
    }
  }
};

// Where the sum of a row stands among sums of rows.
template <class P>
__device__ __forceinline__ int64 place_of_sum(const Sizes<P>& sizes, int64 row,
                                              typename P::Offset column) {
  return (row * sizes.width() + column) * kSumSize<P>;
}

// Sums that stand one after another, in one column of vectors, some of which are read at a time.
template <class P, int vector, uint32 at_a_time>
struct ListedSums {
  static constexpr bool computes = false;
  using Sum = RowSum<P, vector>;
  static constexpr uint32 in_flight = at_a_time;
  const Accumulate<typename P::Data>* sums;
  const Sizes<P>& sizes;
  int64 first;
  typename P::Offset column;

  __device__ __forceinline__ const Sum& complete(const Sum& sum) const { return sum; }
  __device__ __forceinline__ uint32 item(uint32 at) const { return at; }
  __device__ __forceinline__ Sum read(uint32 at) const {
    return *reinterpret_cast<const Sum*>(sums + place_of_sum<P>(sizes, first + at, column));
  }
};

// What is written where `count` updates have the given sum and `old` stands, which is read only if
// the problem includes it.
template <class P, int vector, bool mean>
__device__ __forceinline__ Vector<typename P::Data, vector> result_of(
    const Vector<typename P::Data, vector>& old,
    const Vector<Accumulate<typename P::Data>, vector>& sum, uint32 count) {
  using Data = typename P::Data;
  using R = typename P::Reduction;
  Vector<Data, vector> result;
#pragma unroll
  for (int i = 0; i < vector; ++i) {
    if constexpr (mean) {
      Accumulate<Data> value = sum.at[i];
      if constexpr (P::include_self) value = R::combine(widen(old.at[i]), value);
      value = divide<Accumulate<Data>>(value, count + (P::include_self ? 1u : 0u));
      result.at[i] = narrow<Data>(value);
    } else {
      result.at[i] = P::include_self ? combine_into<R>(old.at[i], sum.at[i])
                                     : stored<R, Data>(sum.at[i]);
    }
  }
  return result;
}

template <class P, int vector, bool mean>
__device__ __forceinline__ Vector<typename P::Data, vector> result_of(
    const Vector<typename P::Data, vector>&,
    const SoftmaxSum<Accumulate<typename P::Data>, vector>& sum, uint32) {
  return softmax_result<typename P::Data>(sum);
}

// Which row a thread works on, and its first column: `tiles` groups of `lanes` threads share a row.
// These are neighbours, unless a number of rows is given: then the first parts of all rows come before
// the second ones, so that what is read of a tensor at a time fits the second-level cache. A thread has
// `columns` vectors of a part.
template <class P, int lanes, int vector, int columns = 1>
struct RowShare {
  using Offset = typename P::Offset;
  int64 row, tile;
  Offset first, step;
  static constexpr bool writes = true;

  __device__ __forceinline__ explicit RowShare(int64 tiles, int64 rows_apart = 0)
      : RowShare(tiles, first_in_grid() / lanes, first_in_grid() % lanes, rows_apart) {}
  // That of a thread in some group of lanes.
  __device__ __forceinline__ RowShare(const Sizes<P>&, int64 tiles, int64 group,
                                      int64 rows_apart = 0)
      : RowShare(tiles, group, threadIdx.x % lanes, rows_apart) {}

 private:
  // The lane as 32 or 64 bits.
  template <class Lane>
  __device__ __forceinline__ RowShare(int64 tiles, int64 group, Lane lane, int64 rows_apart) {
    tile = rows_apart ? group / rows_apart : group % tiles;
    row = rows_apart ? group - tile * rows_apart : group / tiles;
    // Groups behind the last part have no row, or they would do what others do once more.
    if (rows_apart && tile >= tiles) row = rows_apart;
    first = static_cast<Offset>(tile * lanes * columns + lane) * vector;
    step = static_cast<Offset>(tiles) * lanes * vector * columns;
  }
};

}  // namespace tvm_scatter
#endif
