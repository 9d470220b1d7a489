// Several vectors of a row for each thread, so far apart that neighbouring threads read neighbouring
// ones: rows whose size is odd have only short vectors, of which one keeps little in flight.
#ifndef TVM_SCATTER_PLACE_COLUMNS
#define TVM_SCATTER_PLACE_COLUMNS
#include "place_updates.cuh"

namespace tvm_scatter {

// Vectors `lanes` vectors apart, the first of which begins at a column of the row.
template <class Offset, int lanes, int vector, int columns>
struct ColumnsApart {
  static constexpr Offset step = lanes * vector;
  Offset first, width;

  __device__ __forceinline__ ColumnsApart(Offset first, Offset width) : first(first), width(width) {}
  // Where one begins, or the last one of the row if it would be beyond.
  __device__ __forceinline__ Offset at(int number) const {
    return number == 0 ? first : min(first + number * step, width - vector);
  }
  // What `read` has for the number of each of them, side by side.
  template <class T, class Read>
  __device__ __forceinline__ Vector<T, vector * columns> joined(Read read) const {
    Vector<T, vector * columns> result;
#pragma unroll
    for (int number = 0; number < columns; ++number) {
      const Vector<T, vector> part = read(number);
#pragma unroll
      for (int i = 0; i < vector; ++i) result.at[number * vector + i] = part.at[i];
    }
    return result;
  }
  // Calls `visit` with each of them that is within the row.
  template <class T, class Visit>
  __device__ __forceinline__ void divided(const Vector<T, vector * columns>& all,
                                          Visit visit) const {
#pragma unroll
    for (int number = 0; number < columns; ++number) {
      Vector<T, vector> part;
#pragma unroll
      for (int i = 0; i < vector; ++i) part.at[i] = all.at[number * vector + i];
      if (number == 0 || first + number * step < width) visit(first + number * step, part);
    }
  }
};

template <class T, int count>
struct Several {
  T of[count];
};

// As `PlaceUpdates`, of several vectors of the row of a place.
template <class P, class Key, int lanes, int vector, int columns, bool first = false>
struct PlaceColumns {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Rows = PlaceUpdates<P, Key, lanes, vector, true, true, first>;
  using Own = typename P::Updates::template Own<vector>;
  using Columns = ColumnsApart<Offset, lanes, vector, columns>;
  static constexpr bool computes = Rows::computes;
  static constexpr uint32 in_flight = Rows::in_flight;
  const typename P::Updates& updates;
  const typename ListOf<Key>::Type items;
  const Sizes<P>& sizes;
  const Columns& own_columns;
  Own own[columns];

  __device__ __forceinline__ PlaceColumns(const typename P::Updates& updates,
                                          const typename ListOf<Key>::Type& items,
                                          const Sizes<P>& sizes, int64 place,
                                          const Columns& own_columns)
      : updates(updates), items(items), sizes(sizes), own_columns(own_columns) {
    go_to(place);
  }
  // The updates that come next are of another place.
  __device__ __forceinline__ void go_to(int64 place) {
#pragma unroll
    for (int number = 0; number < columns; ++number)
      own[number] = own_of<P, vector, true>(updates, place, own_columns.at(number));
  }
  __device__ __forceinline__ Rows rows(int number) const {
    return {{updates, items, sizes, own_columns.at(number)}, own[number], true};
  }
  // Which update it is does not depend on the column.
  __device__ __forceinline__ auto item(uint32 at) const { return rows(0).item(at); }
  template <class Item>
  __device__ __forceinline__ auto read(const Item& item) const {
    Several<decltype(copy_of(rows(0).read(item))), columns> result;
#pragma unroll
    for (int number = 0; number < columns; ++number) result.of[number] = rows(number).read(item);
    return result;
  }
  template <class Read>
  __device__ __forceinline__ Vector<Data, vector * columns> complete(const Read& read) const {
    return own_columns.template joined<Data>(
        [&](int number) { return rows(number).complete(read.of[number]); });
  }
};

}  // namespace tvm_scatter
#endif
