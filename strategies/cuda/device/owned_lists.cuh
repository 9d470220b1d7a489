// The updates of the rows that a block owns, listed in its shared memory. It looks through all items.
#ifndef TVM_SCATTER_OWNED_LISTS
#define TVM_SCATTER_OWNED_LISTS
#include "grid.cuh"
#include "stable_ranks.cuh"

namespace tvm_scatter {

// The most indices of a thread that are on their way together.
constexpr int kIndicesAhead = 16;

// Every `groups`-th place. Places side by side are often alike, so different blocks have them.
template <int groups>
struct Residues {
  uint32 group, places;

  __device__ __forceinline__ uint32 rows() const {
    return places > group ? (places - group - 1) / groups + 1 : 0;
  }
  // Whether it owns a place, which is this row of it.
  __device__ __forceinline__ bool owns(uint32 place, uint32& row) const {
    row = place / groups;
    return place < places && place - row * groups == group;
  }
  __device__ __forceinline__ uint32 place(uint32 row) const { return row * groups + group; }
};

// Some places side by side.
struct PlaceRange {
  uint32 first, count;

  __device__ __forceinline__ uint32 rows() const { return count; }
  __device__ __forceinline__ bool owns(uint32 place, uint32& row) const {
    row = place - first;
    return row < count;
  }
};

// For whole blocks. Those of a row are listed in the order of the items.
template <class P, int threads, class Owner>
struct OwnedLists {
  static constexpr int warps = threads / kWarp;
  Owner owner;
  uint32 rows, part;
  uint32* found;   // in the part of each warp: the row, and the item in the lower half
  uint32* begins;  // of each row's updates in the list, and the number of all
  unsigned short* list;
  unsigned short* met;  // by each warp, of each row

  __device__ __forceinline__ OwnedLists(char* shared, const Sizes<P>& sizes, const Owner& owner)
      : owner(owner), rows(owner.rows()) {
    part = ceil_div<uint32>(static_cast<uint32>(sizes.items()), threads) * kWarp;
    found = reinterpret_cast<uint32*>(shared);
    begins = found + part * warps;
    met = reinterpret_cast<unsigned short*>(begins + rows + 1);
    list = met + 2 * pairs_of(rows) * warps;
  }

  __device__ __forceinline__ uint32 updates_of(uint32 row) const { return begins[row + 1] - begins[row]; }

  // Looks through all items; `look(place)` is called for each, also for what is past the end, with
  // the number of places for what is dropped.
  template <int ahead, class Look>
  __device__ __forceinline__ void make(const Indices<P>& indices, const Sizes<P>& sizes,
                                       Look look) const {
    const int pairs = pairs_of(rows);
    uint32* const counters = reinterpret_cast<uint32*>(met);
    for (uint32 i = threadIdx.x; i < pairs * warps; i += threads) counters[i] = 0;
    __syncthreads();
    const uint32 warp = threadIdx.x / kWarp;
    uint32* const mine = found + warp * part;
    unsigned short* const own = met + warp * 2 * pairs;
    const uint32 size = find<ahead>(indices, sizes, mine, own, look);
    __syncthreads();
    const uint32 all = begin_bins<threads>(
        met, static_cast<int>(rows), [&](int row, uint32 first) { begins[row] = first; });
    if (threadIdx.x == 0) begins[rows] = all;
    fill(mine, own, size);
    __syncthreads();
  }

 private:
  // A warp looks through its part of the items, and returns how many are for this block.
  template <int ahead, class Look>
  __device__ __forceinline__ uint32 find(const Indices<P>& indices, const Sizes<P>& sizes, uint32* to,
                                         unsigned short* counts, Look look) const {
    const int lane = threadIdx.x % kWarp;
    const uint32 first = threadIdx.x / kWarp * part, items = static_cast<uint32>(sizes.items());
    uint32 size = 0;
    for (uint32 start = 0; start < part; start += kWarp * ahead) {
      typename P::Offset places[ahead];
      places_of<P>(places, first + start + lane, kWarp, indices, sizes);
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        if (start + u * kWarp >= part) break;
        const uint32 item = first + start + u * kWarp + lane;
        uint32 row;
        const bool is_mine = owner.owns(static_cast<uint32>(places[u]), row) && item < items;
        look(static_cast<uint32>(places[u]));
        const uint32 all = __ballot_sync(kAllLanes, is_mine);
        // Most are for other blocks.
        if (all == 0) continue;
        count(counts, row, is_mine);
        if (is_mine) to[size + __popc(all & ((1u << lane) - 1))] = row << 16 | item;
        size += __popc(all);
      }
    }
    return size;
  }

  // For whole warps: counts an update of a row, and returns how many there were before.
  __device__ __forceinline__ uint32 count(unsigned short* counts, uint32 row, bool counts_it) const {
    const uint32 peers = __match_any_sync(kAllLanes, counts_it ? row : ~0u);
    return meet(counts, row, peers, (1u << threadIdx.x % kWarp) - 1, counts_it);
  }

  // A warp puts each of its items behind those of the same row.
  __device__ __forceinline__ void fill(const uint32* entries, unsigned short* next,
                                       uint32 size) const {
    for (uint32 start = 0; start < size; start += kWarp) {
      const uint32 at = start + threadIdx.x % kWarp;
      const uint32 entry = at < size ? entries[at] : 0;
      const uint32 to = count(next, entry >> 16, at < size);
      if (at < size) list[to] = static_cast<unsigned short>(entry);
    }
  }
};

}  // namespace tvm_scatter
#endif
