// Work that some blocks of a launch list, and that all of them take: units.
//
// A block that finds more to do than others claims places in the list, writes its units there, and
// publishes them. Whoever is done with its own takes units as long as there are any, and a block that
// has published some until none of its own is left. So nothing is lost if all others are gone. All
// calls are for one thread of a block.
#ifndef TVM_SCATTER_UNIT_LIST
#define TVM_SCATTER_UNIT_LIST
#include "common.cuh"

namespace tvm_scatter {

// Zeros at first. Blocks that have begun and are not decided may publish units yet.
struct UnitList {
  uint32 begun, decided;
  uint32 claimed, published, taken;
  int available;
  uint32 slots;  // blocks that have claimed
};
constexpr uint32 kNoUnit = ~0u;

// Where a block's units stand, how many they are, and its number among those that have any.
struct Claim {
  uint32 first, units, slot;
};

// What another block may change.
template <class T>
__device__ __forceinline__ T look_at(const T& value) {
  return const_cast<const volatile T&>(value);
}

__device__ __forceinline__ void begin_block(UnitList& list) { atomicAdd(&list.begun, 1u); }

__device__ __forceinline__ void decide_for_none(UnitList& list) { atomicAdd(&list.decided, 1u); }

__device__ __forceinline__ Claim claim_units(UnitList& list, uint32 units) {
  return {atomicAdd(&list.claimed, units), units, atomicAdd(&list.slots, 1u)};
}

// The block has written its units, and what they need. They are available in the order of their places.
__device__ __forceinline__ void publish_units(UnitList& list, const Claim& claim) {
  __threadfence();
  // Blocks that claimed earlier are running, and wait for nobody later.
  while (look_at(list.published) != claim.first) {
  }
  __threadfence();
  atomicAdd(&list.available, static_cast<int>(claim.units));
  __threadfence();
  atomicAdd(&list.published, claim.units);
  atomicAdd(&list.decided, 1u);
}

// Whether units are available, or so many blocks, which all have begun, may publish some yet. As long as
// others have to begin, these need the place of whoever waits.
__device__ __forceinline__ bool may_have_units(const UnitList& list, uint32 blocks) {
  const bool decided = look_at(list.decided) == blocks;  // first: then what was published is seen
  return look_at(list.available) > 0 || (!decided && look_at(list.begun) == blocks);
}

// Take a unit. Returns its number, or none: the former as long as any of the first `own` is left. Others
// may give up although one is left, where several look at it.
__device__ __forceinline__ uint32 take_unit(UnitList& list, uint32 blocks, uint32 own) {
  while (look_at(list.taken) < own || may_have_units(list, blocks)) {
    if (look_at(list.available) <= 0) continue;
    if (atomicAdd(&list.available, -1) > 0) {
      __threadfence();
      return atomicAdd(&list.taken, 1u);
    }
    atomicAdd(&list.available, 1);
  }
  return kNoUnit;
}

}  // namespace tvm_scatter
#endif
