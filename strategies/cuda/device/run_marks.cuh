// Which run an entry is of, where a bit for each entry says whether a run begins with it.
#ifndef TVM_SCATTER_RUN_MARKS
#define TVM_SCATTER_RUN_MARKS
#include "common.cuh"

namespace tvm_scatter {

// In shared memory, of so many words of entries.
template <int words>
struct RunMarks {
  uint32 starts[words];   // the bits
  uint32 earlier[words];  // runs that begin before each of these words

  // For the threads of runs, once `starts` are zero.
  __device__ __forceinline__ void begin_with(uint32 entry) {
    atomicOr(&starts[entry / kWarp], 1u << entry % kWarp);
  }
  __device__ __forceinline__ uint32 run_of(uint32 entry) const {
    const uint32 word = starts[entry / kWarp];
    return earlier[entry / kWarp] + __popc(word & ((2u << entry % kWarp) - 1)) - 1;
  }
};

}  // namespace tvm_scatter
#endif
