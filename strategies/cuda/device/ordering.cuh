// What a sort by destination leaves for scatters: the updates in order, and where each destination's
// begin.
#ifndef TVM_SCATTER_ORDERING
#define TVM_SCATTER_ORDERING
#include "grid.cuh"

namespace tvm_scatter {

// How many of the sorted keys are less than a place.
template <class Key>
__device__ __forceinline__ int64 keys_below(const Key* keys, int64 size, Key place) {
  int64 begin = 0;
  for (int64 end = size; begin < end;) {
    const int64 middle = (begin + end) / 2;
    if (keys[middle] < place) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

template <class Entry, class Key>
__device__ __forceinline__ void write_order(Entry* permutation, Entry* offsets, const Key* keys,
                                            const Key* items, int64 size, int64 places) {
  // Searches take longest, so they begin first.
  for (int64 work = first_in_grid(); work < places + 1 + size; work += threads_in_grid()) {
    if (work <= places) {
      offsets[work] = static_cast<Entry>(keys_below(keys, size, static_cast<Key>(work)));
    } else {
      permutation[work - places - 1] = static_cast<Entry>(items[work - places - 1]);
    }
  }
}

}  // namespace tvm_scatter
#endif
