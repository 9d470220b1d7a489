// The updates of one place, read by somebody who knows the place: what is the same for all of them is
// read once.
#ifndef TVM_SCATTER_PLACE_UPDATES
#define TVM_SCATTER_PLACE_UPDATES
#include "row_sums.cuh"
#include "shared_logits.cuh"

namespace tvm_scatter {

// What is the same for all updates of a place, in one column of vectors.
template <class P, int vector, bool whole>
__device__ __forceinline__ auto own_of(const typename P::Updates& updates, int64 place,
                                       typename P::Offset column) {
  if constexpr (P::Updates::owns) {
    return updates.template own<vector, whole>(place, column);
  } else {
    return typename P::Updates::template Own<vector>{};
  }
}

// As `ListedUpdates`, of one place. `whole` says that vectors are loaded as such.
template <class P, class Key, int lanes, int vector, bool whole, bool once = false>
struct PlaceUpdates {
  static constexpr bool computes = P::Updates::owns;
  static constexpr uint32 in_flight = kInFlight;
  using Offset = typename P::Offset;
  // Most places have so few updates that there is nothing to read first.
  using Listed = ListedUpdates<P, Key, vector, once, true>;
  using Own = typename P::Updates::template Own<vector>;
  const Listed listed;
  const Own& own;
  bool counts;

  __device__ __forceinline__ auto item(uint32 at) const { return listed.item(at); }
  __device__ __forceinline__ auto read(typename Listed::Found found) const {
    if constexpr (P::Updates::owns) {
      return listed.updates.template owned<vector, whole>(found, listed.column, own);
    } else {
      return listed.read(found);
    }
  }
  // What was read, once all threads of the group have read it.
  template <class Row>
  __device__ __forceinline__ decltype(auto) complete(const Row& row) const {
    if constexpr (P::Updates::summed_columns > 0) {
      constexpr int sharing = sharing_lanes<P, vector>();
      const auto part = counts ? row.part : decltype(row.part)(0);
      return listed.updates.complete(row, sum_of_sharing<sharing, lanes>(part));
    } else {
      return (row);
    }
  }
};

// Combine `count` updates of one place into `sum`, in order.
template <class Sum, class P, class Key, int lanes, int vector, bool whole, bool once>
__device__ __forceinline__ void combine_updates(
    Sum& sum, uint32 count, const PlaceUpdates<P, Key, lanes, vector, whole, once>& rows) {
  for_each_row(count, rows, [&](uint32, const auto& row) {
    add_row<typename P::Reduction>(sum, row);
  });
}

}  // namespace tvm_scatter
#endif
