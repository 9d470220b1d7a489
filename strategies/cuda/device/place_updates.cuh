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

// Whether the updates of a place are read before anything is computed with them.
template <class P, int vector>
constexpr bool reads_owned_first() {
  if constexpr (P::Updates::owns) {
    return P::Updates::template reads_first<vector>;
  } else {
    return false;
  }
}

// Whether the entries of a list are what it carries of each update, and not only say which it is.
template <class P, class Key>
constexpr bool is_carried() {
  using Carried = typename P::Updates::Carried;
  return same<Key, Carried> || same<Key, Numbered<Carried>>;
}

// One access for an entry, whose size is a power of two.
template <class Entry>
__device__ __forceinline__ Entry load_entry(const Entry& entry) {
  constexpr int words = sizeof(Entry) / sizeof(uint32);
  return bit_cast<Entry>(load<uint32, words>(reinterpret_cast<const uint32*>(&entry)));
}

template <class Entry>
__device__ __forceinline__ void store_entry(Entry* to, const Entry& entry) {
  constexpr int words = sizeof(Entry) / sizeof(uint32);
  store<uint32, words>(reinterpret_cast<uint32*>(to), bit_cast<Vector<uint32, words>>(entry));
}

// As `ListedUpdates`, of one place. `whole` says that vectors are loaded as such, and `first` that what
// can be read before anything is computed is. Most places have so few updates that there is nothing.
template <class P, class Key, int lanes, int vector, bool whole, bool once = false,
          bool first = false>
struct PlaceUpdates {
  static constexpr bool reads_first = first && reads_owned_first<P, vector>();
  static constexpr bool computes = P::Updates::owns && !reads_first;
  static constexpr uint32 in_flight = kInFlight;
  using Offset = typename P::Offset;
  using Listed = ListedUpdates<P, Key, vector, once, !first>;
  using Own = typename P::Updates::template Own<vector>;
  const Listed listed;
  const Own& own;
  bool counts;

  __device__ __forceinline__ auto item(uint32 at) const {
    if constexpr (is_carried<P, Key>()) {
      return load_entry(listed.items[at]);
    } else {
      return listed.item(at);
    }
  }
  template <class Item>
  __device__ __forceinline__ auto read(const Item& found) const {
    if constexpr (reads_first) {
      return listed.updates.template fetch<vector, whole>(found, listed.column);
    } else if constexpr (P::Updates::owns) {
      return listed.updates.template owned<vector, whole>(found, listed.column, own);
    } else {
      return listed.read(found);
    }
  }
  // What was read, once all threads of the group have read it.
  template <class Read>
  __device__ __forceinline__ decltype(auto) complete(const Read& read) const {
    if constexpr (reads_first) {
      return with_logit(listed.updates.computed(read, listed.column, own));
    } else if constexpr (P::Updates::owns) {
      return with_logit(read);
    } else {
      return listed.complete(read);
    }
  }

 private:
  template <class Row>
  __device__ __forceinline__ auto with_logit(const Row& row) const {
    if constexpr (P::Updates::summed_columns > 0) {
      constexpr int sharing = sharing_lanes<P, vector>();
      const auto part = counts ? row.part : decltype(row.part)(0);
      return listed.updates.complete(row, sum_of_sharing<sharing, lanes>(part));
    } else {
      return row;
    }
  }
};

// What is read of updates, to be completed by whoever visits it.
template <class Rows>
struct AsRead {
  static constexpr bool computes = Rows::computes;
  static constexpr uint32 in_flight = Rows::in_flight;
  const Rows& rows;

  __device__ __forceinline__ auto item(uint32 at) const { return rows.item(at); }
  template <class Item>
  __device__ __forceinline__ auto read(const Item& item) const {
    return rows.read(item);
  }
  template <class Read>
  __device__ __forceinline__ const Read& complete(const Read& read) const {
    return read;
  }
};

}  // namespace tvm_scatter
#endif
