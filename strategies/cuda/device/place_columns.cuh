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
  // Calls `visit` with the number of each that is within the row, and with where it begins.
  template <class Visit>
  __device__ __forceinline__ void for_each(Visit visit) const {
#pragma unroll
    for (int number = 0; number < columns; ++number)
      if (number == 0 || first + number * step < width) visit(number, first + number * step);
  }
  // What `read` has for the number of each of them, side by side; of one alone it may be no vector.
  template <class T, class Read>
  __device__ __forceinline__ auto joined(Read read) const {
    if constexpr (columns == 1) {
      return read(0);
    } else {
      Vector<T, vector * columns> result;
#pragma unroll
      for (int number = 0; number < columns; ++number) {
        const Vector<T, vector> part = read(number);
#pragma unroll
        for (int i = 0; i < vector; ++i) result.at[number * vector + i] = part.at[i];
      }
      return result;
    }
  }
  // Calls `visit` with where each of them that is within the row begins, and with what it has.
  template <class All, class Visit>
  __device__ __forceinline__ void divided(const All& all, Visit visit) const {
    if constexpr (columns == 1) {
      visit(first, all);
    } else {
      for_each([&](int number, Offset at) {
        Vector<decltype(copy_of(all.at[0])), vector> part;
#pragma unroll
        for (int i = 0; i < vector; ++i) part.at[i] = all.at[number * vector + i];
        visit(at, part);
      });
    }
  }
};

template <class T, int count>
struct Several {
  T of[count];
};

// As `PlaceUpdates`, of several vectors of the row of a place.
template <class P, class Key, int lanes, int vector, int columns, bool whole, bool once = false,
          bool first = false>
struct PlaceColumns {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Rows = PlaceUpdates<P, Key, lanes, vector, whole, once, first>;
  using Own = typename P::Updates::template Own<vector>;
  using Columns = ColumnsApart<Offset, lanes, vector, columns>;
  static constexpr bool computes = Rows::computes;
  static constexpr uint32 in_flight = Rows::in_flight;
  const typename P::Updates& updates;
  const typename ListOf<Key>::Type items;
  const Sizes<P>& sizes;
  const Columns& own_columns;
  bool counts;
  Own own[columns];

  __device__ __forceinline__ PlaceColumns(const typename P::Updates& updates,
                                          const typename ListOf<Key>::Type& items,
                                          const Sizes<P>& sizes, int64 place,
                                          const Columns& own_columns, bool counts = true)
      : updates(updates), items(items), sizes(sizes), own_columns(own_columns), counts(counts) {
    go_to(place);
  }
  // The updates that come next are of another place.
  __device__ __forceinline__ void go_to(int64 place) {
#pragma unroll
    for (int number = 0; number < columns; ++number)
      own[number] = own_of<P, vector, whole>(updates, place, own_columns.at(number));
  }
  __device__ __forceinline__ Rows rows(int number) const {
    return {{updates, items, sizes, own_columns.at(number)}, own[number], counts};
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
  __device__ __forceinline__ auto complete(const Read& read) const {
    return own_columns.template joined<Data>(
        [&](int number) { return rows(number).complete(read.of[number]); });
  }
};

}  // namespace tvm_scatter
#endif
