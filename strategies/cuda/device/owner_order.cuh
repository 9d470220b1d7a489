// The order of few updates by destination in one launch: each block looks through all of them, lists
// those of its places, and counts those of the places in front, which come before in the order.
#ifndef TVM_SCATTER_OWNER_ORDER
#define TVM_SCATTER_OWNER_ORDER
#include "owned_lists.cuh"

namespace tvm_scatter {

constexpr int kOwnerOrderThreads = 1024;

// Each block owns `each` places. One place more than there are is that of updates that are dropped.
template <class P, int ahead>
__device__ __forceinline__ void order_by_owners(int* permutation, int* offsets,
                                                const Indices<P>& indices, const Sizes<P>& sizes,
                                                uint32 each, char* shared) {
  constexpr int threads = kOwnerOrderThreads;
  const uint32 places = static_cast<uint32>(sizes.destinations()) + 1, first = blockIdx.x * each;
  const OwnedLists<P, threads, PlaceRange> lists(shared, sizes,
                                                 {first, min(each, places - min(first, places))});
  uint32 less = 0;
  lists.template make<ahead>(indices, sizes, [&](uint32 place) { less += place < first; });
  uint32 before;
  exclusive_in_block<threads>(less, before);
  for (uint32 at = threadIdx.x; at < lists.begins[lists.rows]; at += threads)
    permutation[before + at] = lists.list[at];
  // The last of these is behind all that are not dropped.
  for (uint32 row = threadIdx.x; row < lists.rows; row += threads)
    offsets[first + row] = before + lists.begins[row];
}

}  // namespace tvm_scatter
#endif
