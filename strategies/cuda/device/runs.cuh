// Entries of one bucket, which stand in a run in each of many tiles, gathered by a block.
#ifndef TVM_SCATTER_RUNS
#define TVM_SCATTER_RUNS
#include "block_scan.cuh"

namespace tvm_scatter {

// What tiles that were ordered by bucket have left. In a tile, each run begins where the one of the
// bucket before ends.
struct TileRuns {
  const unsigned short* begins;  // [bucket][tile], and behind the last bucket where its runs end
  const uint32* entries;         // tile after tile
  uint32 tiles, tile_items;
};

// Shared memory of a block that gathers up to `most` entries.
template <int threads, int most>
struct RunTable {
  static constexpr int words = most / kWarp;
  static_assert(most % kWarp == 0 && words <= threads, "a thread counts the runs of a word");
  uint32 starts[words];     // a bit for each entry with which a run begins
  uint32 earlier[words];    // runs that begin before each of these words
  uint32 origins[threads];  // of each run that is not empty: where its entries stand, less those before

  // Gather entries of a bucket, from `skip` after the beginning of a tile's run on: the first `most`,
  // or only if all of them fit, the `whole` bucket. `read(from)` reads what stands there, some at a
  // time, and `put(at, from, read)` gets it, with its number. Returns how many there are; for the
  // first `most`, some number beyond it if there are more. What this thread saw of where runs begin
  // is added to `begins`.
  template <class Read, class Put>
  __device__ __forceinline__ uint32 gather(const TileRuns& runs, uint32 bucket, uint32 first_tile,
                                           uint32 skip, bool whole, uint32& begins, Read read,
                                           Put put) {
    const unsigned short* const own = runs.begins + static_cast<int64>(bucket) * runs.tiles;
    uint32 found = 0;
    for (uint32 start = first_tile; start < runs.tiles; start += threads) {
      if (!whole && found >= most) break;
      const uint32 tile = start + threadIdx.x;
      uint32 begin = 0, length = 0, total;
      if (tile < runs.tiles) {
        begin = own[tile];
        begins += begin;
        length = own[runs.tiles + tile] - begin;
        if (tile == first_tile) begin += skip, length -= skip;
      }
      const uint32 before = exclusive_in_block<threads>(length, total);
      const uint32 left = found < most ? most - found : 0;
      const uint32 wanted = whole && total > left ? 0 : min(total, left);
      if (wanted > 0)
        mark(length > 0 && before < wanted, before, tile * runs.tile_items + begin - before);
      constexpr int in_flight = 4;
      for (uint32 base = threadIdx.x; base < wanted; base += threads * in_flight) {
        uint32 from[in_flight];
        decltype(read(0u)) entry[in_flight];
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          const uint32 at = base + u * threads;
          if (at >= wanted) continue;
          from[u] = origins[run_of(at)] + at;
          entry[u] = read(from[u]);
        }
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          const uint32 at = base + u * threads;
          if (at < wanted) put(found + at, from[u], entry[u]);
        }
      }
      found += total;
      __syncthreads();
    }
    return found;
  }

 private:
  // The run that an entry belongs to, of those that are not empty.
  __device__ __forceinline__ uint32 run_of(uint32 at) const {
    const uint32 word = starts[at / kWarp];
    return earlier[at / kWarp] + __popc(word & ((2u << at % kWarp) - 1)) - 1;
  }

  // For whole blocks: each thread may have a run that begins with an entry.
  __device__ __forceinline__ void mark(bool has_run, uint32 first, uint32 origin) {
    if (threadIdx.x < words) starts[threadIdx.x] = 0;
    __syncthreads();
    if (has_run) atomicOr(&starts[first / kWarp], 1u << first % kWarp);
    __syncthreads();
    uint32 all;
    const uint32 mine = threadIdx.x < words ? __popc(starts[threadIdx.x]) : 0;
    const uint32 sum = exclusive_in_block<threads>(mine, all);
    if (threadIdx.x < words) earlier[threadIdx.x] = sum;
    __syncthreads();
    if (has_run) origins[run_of(first)] = origin;
    __syncthreads();
  }
};

}  // namespace tvm_scatter
#endif
