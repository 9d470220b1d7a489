// Stream compaction of a mask: true entries are counted for each tile, the counts are summed up, and
// each tile writes the positions of its true entries behind those of the tiles before it.
#ifndef TVM_SCATTER_COMPACTION
#define TVM_SCATTER_COMPACTION
#include "block_scan.cuh"

namespace tvm_scatter {

constexpr int kCompactThreads = 256;
// Entries of a thread: as many as it loads by one access.
constexpr int kCompactEntries = 16;
constexpr int kCompactTile = kCompactThreads * kCompactEntries;
constexpr int kOffsetsThreads = 1024;

// A bit for each of the thread's entries: whether it is true.
__device__ __forceinline__ uint32 true_entries(const unsigned char* mask, int64 size) {
  const int64 first =
      static_cast<int64>(blockIdx.x) * kCompactTile + threadIdx.x * kCompactEntries;
  uint32 bits = 0;
  if (first + kCompactEntries <= size && aligned<unsigned char, kCompactEntries>(mask)) {
    const auto entries = load<unsigned char, kCompactEntries>(mask + first);
#pragma unroll
    for (int i = 0; i < kCompactEntries; ++i) bits |= static_cast<uint32>(entries.at[i] != 0) << i;
  } else {
    for (int i = 0; i < kCompactEntries && first + i < size; ++i)
      bits |= static_cast<uint32>(mask[first + i] != 0) << i;
  }
  return bits;
}

// One block for each tile: the number of its true entries.
__device__ __forceinline__ void count_true(int64* counts, const unsigned char* mask, int64 size) {
  uint32 total;
  exclusive_in_block<kCompactThreads>(__popc(true_entries(mask, size)), total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// One block: the counts of the tiles become the numbers of true entries before them. The number of
// all stands behind them, and in memory that the host reads.
__device__ __forceinline__ void sum_counts(int64* counts, int64 tiles, volatile int64* number) {
  int64 carry = 0;
  for (int64 first = 0; first < tiles; first += kOffsetsThreads) {
    const int64 tile = first + threadIdx.x;
    // A count of one turn fits 32 bits.
    uint32 total;
    const uint32 count = tile < tiles ? static_cast<uint32>(counts[tile]) : 0;
    const uint32 before = exclusive_in_block<kOffsetsThreads>(count, total);
    if (tile < tiles) counts[tile] = carry + before;
    carry += total;
  }
  if (threadIdx.x != 0) return;
  counts[tiles] = carry;
  *number = carry;
  __threadfence_system();
}

// One block for each tile. Its positions are put together in shared memory first, so that
// neighbouring threads write to neighbouring addresses.
__device__ __forceinline__ void write_true(int64* positions, const int64* before,
                                           const unsigned char* mask, int64 size) {
  __shared__ unsigned short places[kCompactTile];
  uint32 bits = true_entries(mask, size);
  uint32 total;
  uint32 rank = exclusive_in_block<kCompactThreads>(__popc(bits), total);
  for (; bits; bits &= bits - 1)
    places[rank++] = static_cast<unsigned short>(threadIdx.x * kCompactEntries + __ffs(bits) - 1);
  __syncthreads();
  const int64 first = static_cast<int64>(blockIdx.x) * kCompactTile;
  int64* const to = positions + before[blockIdx.x];
  for (uint32 i = threadIdx.x; i < total; i += kCompactThreads) to[i] = first + places[i];
}

}  // namespace tvm_scatter
#endif
