// Entries of one bucket, which stand in a run in each of many tiles, gathered by a block.
#ifndef TVM_SCATTER_RUNS
#define TVM_SCATTER_RUNS
#include "block_scan.cuh"
#include "run_marks.cuh"

namespace tvm_scatter {

// What tiles that were ordered by bucket have left. In a tile, each run begins where the one of the
// bucket before ends.
struct TileRuns {
  const unsigned short* begins;  // [bucket][tile], and behind the last bucket where its runs end
  const uint32* entries;         // tile after tile
  uint32 tiles, tile_items;
};

constexpr uint32 kMostTileItems = 1 << 13;
// In the lower bits of a word, entries of as many tiles as a block has threads; in the others, runs.
constexpr int kEntryBits = 23;
constexpr uint32 kEntries = (1u << kEntryBits) - 1;

// Shared memory of a block that gathers up to `most` entries.
template <int threads, int most>
struct RunTable {
  static constexpr int words = most / kWarp;
  static_assert(most % kWarp == 0 && words <= threads, "a thread clears a word");
  static_assert(threads * kMostTileItems <= kEntries, "a word counts all entries");
  RunMarks<words> marks;
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
      // Entries and runs before this thread's, which are few enough to be counted in one word. What
      // is cleared here is set behind the barriers of the count.
      if (threadIdx.x < words) marks.starts[threadIdx.x] = 0;
      const uint32 counted = length | static_cast<uint32>(length > 0) << kEntryBits;
      const uint32 sums = exclusive_in_block<threads>(counted, total);
      const uint32 before = sums & kEntries;
      total &= kEntries;
      const uint32 left = found < most ? most - found : 0;
      const uint32 wanted = whole && total > left ? 0 : min(total, left);
      if (length > 0 && before < wanted)
        mark(sums >> kEntryBits, before, length, tile * runs.tile_items + begin - before);
      __syncthreads();
      constexpr int in_flight = 4;
      for (uint32 base = threadIdx.x; base < wanted; base += threads * in_flight) {
        uint32 from[in_flight];
        decltype(read(0u)) entry[in_flight];
#pragma unroll
        for (int u = 0; u < in_flight; ++u) {
          const uint32 at = base + u * threads;
          if (at >= wanted) continue;
          from[u] = origins[marks.run_of(at)] + at;
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
  // A run of so many entries, and where it stands.
  __device__ __forceinline__ void mark(uint32 run, uint32 first, uint32 length, uint32 origin) {
    marks.begin_with(first);
    origins[run] = origin;
    if (first == 0) marks.earlier[0] = 0;
    // The words that begin behind its first entry, and before or with the next run.
    const uint32 last = min((first + length) / kWarp, static_cast<uint32>(words) - 1);
    for (uint32 word = first / kWarp + 1; word <= last; ++word) marks.earlier[word] = run + 1;
  }
};

}  // namespace tvm_scatter
#endif
