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

// Shared memory of a block that gathers.
template <int threads>
struct RunTable {
  uint32 before[threads];   // of each run, entries of the runs before it
  uint32 origins[threads];  // where its entries stand, less those before it

  // Gather entries of a bucket, from `skip` after the beginning of a tile's run on: the first `most`,
  // or only if all of them fit, the `whole` bucket. `put(at, from, entry)` gets each of them, with
  // its number and where it stood. Returns how many there are; for the first `most`, some number
  // beyond it if there are more. What this thread saw of where runs begin is added to `begins`.
  template <class Put>
  __device__ __forceinline__ uint32 gather(const TileRuns& runs, uint32 bucket, uint32 first_tile,
                                           uint32 skip, uint32 most, bool whole, uint32& begins,
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
      const uint32 earlier = exclusive_in_block<threads>(length, total);
      before[threadIdx.x] = earlier;
      origins[threadIdx.x] = tile * runs.tile_items + begin - earlier;
      __syncthreads();
      const uint32 left = found < most ? most - found : 0;
      const uint32 wanted = whole && total > left ? 0 : min(total, left);
      uint32 reach = 1;
      while (reach < threads && reach < runs.tiles - start) reach *= 2;
      constexpr int in_flight = 4;
      for (uint32 base = threadIdx.x; base < wanted; base += threads * in_flight) {
        uint32 from[in_flight], entry[in_flight];
        // The last run that begins at or before each entry, side by side because every step waits.
        uint32 run[in_flight] = {};
        for (uint32 step = reach / 2; step > 0; step /= 2)
#pragma unroll
          for (int u = 0; u < in_flight; ++u)
            if (before[run[u] + step] <= base + u * threads) run[u] += step;
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          const uint32 at = base + u * threads;
          if (at >= wanted) continue;
          from[u] = origins[run[u]] + at;
          entry[u] = runs.entries[from[u]];
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
};

}  // namespace tvm_scatter
#endif
