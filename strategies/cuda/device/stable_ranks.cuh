// Ranks of a block's items by bin, and among those of one bin in the order of the items.
//
// Ranking inside a warp by votes on digits follows Merrill and Grimshaw, "High performance and
// scalable radix sorting" (2011). Finding a lane's peers by bits in a table of shared memory in place of
// votes is from NVIDIA's CUB (`WARP_MATCH_ATOMIC_OR`).
#ifndef TVM_SCATTER_STABLE_RANKS
#define TVM_SCATTER_STABLE_RANKS
#include "block_scan.cuh"

namespace tvm_scatter {

// A warp's items are neighbours: of item `i` of a thread it is this number in the block, where each
// thread has `turns` of them.
__device__ __forceinline__ uint32 number_in_block(int i, int turns) {
  const uint32 warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  return (warp * turns + i) * kWarp + lane;
}

// Ranks of a thread's items, two in a register: a block has fewer items than 16 bits count.
template <int per_thread>
struct Ranks {
  uint32 pairs[(per_thread + 1) / 2];

  __device__ __forceinline__ uint32 operator[](int i) const {
    return i % 2 ? pairs[i / 2] >> 16 : pairs[i / 2] & 0xffff;
  }
  // In the order of the items.
  __device__ __forceinline__ void append(int i, uint32 rank) {
    pairs[i / 2] = i % 2 ? pairs[i / 2] | rank << 16 : rank;
  }
  __device__ __forceinline__ void add(int i, uint32 more) {
    pairs[i / 2] += i % 2 ? more << 16 : more;
  }
};

// The lanes of a warp that have this lane's number, which has so many bits: a vote for each bit. What
// the match instruction takes depends on how many numbers there are.
template <int bits>
__device__ __forceinline__ uint32 lanes_with(uint32 number) {
  uint32 lanes = kAllLanes;
#pragma unroll
  for (int bit = 0; bit < bits; ++bit) {
    const bool is_set = number >> bit & 1;
    const uint32 set = __ballot_sync(kAllLanes, is_set);
    lanes &= is_set ? set : ~set;
  }
  return lanes;
}

// The same by a table of the warp in shared memory, where each lane sets its bit in a word for the lowest
// bits of its number: fewer instructions than a vote on each of them. All words are zero before and after;
// the caller has the warp wait before it looks again.
template <int bits, int table_bits>
__device__ __forceinline__ uint32 lanes_with(uint32 number, uint32* table) {
  constexpr int kLooked = bits < table_bits ? bits : table_bits;
  // Shared memory takes lanes of one address one by one, so those of the first lane's number only vote.
  const bool is_first = number == __shfl_sync(kAllLanes, number, 0);
  const uint32 first = __ballot_sync(kAllLanes, is_first);
  uint32* const word = table + (number & ((1u << kLooked) - 1));
  if (!is_first) atomicOr(word, 1u << threadIdx.x % kWarp);
  const uint32 others = lanes_with<bits - kLooked>(number >> kLooked);
  __syncwarp();
  const uint32 lanes = is_first ? first : *word & others;
  __syncwarp();
  if (!is_first) *word = 0;
  return lanes;
}

__host__ __device__ constexpr int log2_of(int power) { return power > 1 ? 1 + log2_of(power / 2) : 0; }

// Of each warp, words have the counters of two bins.
__host__ __device__ constexpr int pairs_of(int bins) { return (bins + 1) / 2; }

// For whole warps: a lane that `counts` meets one more of a bin, as its `peers` do, the lanes that have
// the same bin. Returns how many were met before, those of the lanes `below` among them.
__device__ __forceinline__ uint32 meet(unsigned short* met, uint32 bin, uint32 peers, uint32 below,
                                       bool counts) {
  const uint32 before = __popc(peers & below);
  const uint32 earlier = counts ? met[bin] : 0;
  __syncwarp();
  if (counts && before == 0) met[bin] = static_cast<unsigned short>(earlier + __popc(peers));
  __syncwarp();
  return earlier + before;
}

// For whole blocks. `met` has for each warp how many it has met of each bin, and gets the rank of the
// first of these. `visit(bin, first)` is called once for each bin, with the rank of its first item.
// Returns how many there are, which 16 bits count.
template <int threads, class Visit>
__device__ __forceinline__ uint32 begin_bins(unsigned short* met, int bins, Visit visit) {
  constexpr int warps = threads / kWarp, kTogether = 8;
  static_assert(warps % kTogether == 0, "");
  uint32* const counters = reinterpret_cast<uint32*>(met);
  const int pairs = pairs_of(bins);
  uint32 carry = 0;
  for (int start = 0; start < pairs; start += threads) {
    const int pair = start + threadIdx.x;
    uint32 both = 0, total;
    if (pair < pairs) {
#pragma unroll 8
      for (int warp = 0; warp < warps; ++warp) both += counters[warp * pairs + pair];
    }
    const uint32 low = both & 0xffff;
    const uint32 first = carry + exclusive_in_block<threads>(low + (both >> 16), total);
    if (pair < pairs) {
      visit(2 * pair, first);
      if (2 * pair + 1 < bins) visit(2 * pair + 1, first + low);
      uint32 next = first | (first + low) << 16;
      // Several at a time: what is written could be what is read next.
      for (int warp = 0; warp < warps; warp += kTogether) {
        uint32 of_warp[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) of_warp[u] = counters[(warp + u) * pairs + pair];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          counters[(warp + u) * pairs + pair] = next;
          next += of_warp[u];
        }
      }
    }
    carry += total;
  }
  __syncthreads();
  return carry;
}

// Numbers of bins have `bits` bits. `met` has room for counters of `bins` for each warp, and `table` for as
// many words as there are items.
template <int threads, int per_thread, int bits>
struct StableRanks {
  static constexpr int kWarps = threads / kWarp;
  unsigned short* met;
  uint32* table;
  int bins;

  // The ranks of `turns` items of each thread, whose bins `bin_of(i)` tells. `visit` as above.
  template <class BinOf, class Visit>
  __device__ __forceinline__ void find(Ranks<per_thread>& ranks, int turns, BinOf bin_of,
                                       Visit visit) const {
    const int pairs = pairs_of(bins);
    uint32* const counters = reinterpret_cast<uint32*>(met);
    for (int i = threadIdx.x; i < kWarps * pairs; i += threads) counters[i] = 0;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) table[i * threads + threadIdx.x] = 0;
    __syncthreads();
    unsigned short* const own = met + threadIdx.x / kWarp * 2 * pairs;
    uint32* const words = table + threadIdx.x / kWarp * per_thread * kWarp;
    const uint32 below = (1u << threadIdx.x % kWarp) - 1;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      if (i >= turns) continue;
      const uint32 bin = bin_of(i);
      const uint32 peers = lanes_with<bits, log2_of(per_thread * kWarp)>(bin, words);
      ranks.append(i, meet(own, bin, peers, below, true));
    }
    __syncthreads();
    begin_bins<threads>(met, bins, visit);
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) ranks.add(i, own[bin_of(i)]);
  }
};

}  // namespace tvm_scatter
#endif
