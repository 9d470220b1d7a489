// Lines that share one index, such as the channels of an image: the index is ordered once for all.
//
// Places along the axis are cut into buckets of neighbours. The entries of the index are listed by
// bucket, in their own order, and in chunks that shared memory can hold the values of. For each chunk
// it is noted in which order its entries have their places.
//
// A block then takes some lines of a bucket, one after the other. It reads the values in the order of
// the entries, so that neighbours share sectors of memory, and adds them up from shared memory. The
// order of the sums depends on the index alone, and every element is written once.
#ifndef TVM_SCATTER_COMMON_INDEX
#define TVM_SCATTER_COMMON_INDEX
#include "ordering.cuh"
#include "row_sums.cuh"
#include "stable_ranks.cuh"

namespace tvm_scatter {

constexpr int kLineThreads = 512;
constexpr int kLineWarps = kLineThreads / kWarp;
constexpr int kDigitBits = 7;
constexpr int kLineDigits = 1 << kDigitBits;
// A position in a chunk takes so many bits of a word, and its place in the bucket the others.
constexpr int kPositionBits = 14;
// Runs of more entries of one place are added up by a whole warp.
constexpr int kLongRun = 16;
// Values of a run that a thread reads before it adds the first.
constexpr int kValuesAtOnce = 4;

// The entries of an index by bucket.
struct BucketLists {
  uint32* begins;             // of each bucket among the entries, and the end of the last
  uint32* entries;            // in their own order within a bucket
  unsigned short* positions;  // of a chunk's entries, in the order of their places
  unsigned short* ends;       // of each place's run among the positions, for each slot of a chunk
  uint32 buckets;
};

// The slot of the first chunk of a bucket. Each bucket has at least one, and so do so many entries.
template <int chunk>
__device__ __forceinline__ int64 first_slot(const BucketLists& lists, uint32 bucket) {
  return static_cast<int64>(lists.begins[bucket] / chunk) + bucket;
}

// The place of every entry; those of dropped updates are in a bucket of their own, behind all others.
template <class P, class Key>
__device__ __forceinline__ void make_bucket_keys(Key* keys, Key dropped, const Indices<P>& indices,
                                                 const Sizes<P>& sizes) {
  for_each_place<P, 4>(indices, sizes, [&](int64 at, typename P::Offset place) {
    if (at >= sizes.items()) return;
    keys[at] = place < sizes.destinations() ? static_cast<Key>(place) : dropped;
  });
}

template <int bits, class Key>
__device__ __forceinline__ void find_buckets(const BucketLists& lists, const Key* keys,
                                             int64 size) {
  for (int64 bucket = first_in_grid(); bucket <= lists.buckets; bucket += threads_in_grid())
    lists.begins[bucket] =
        static_cast<uint32>(keys_below(keys, size, static_cast<Key>(bucket) << bits));
}

// A pass of a stable sort of the words of a chunk.
template <int per_thread>
__device__ __forceinline__ void order_by_digit(uint32 (&words)[per_thread], int count, int shift,
                                               uint32* ordered) {
  // Those past the end have a digit of their own.
  constexpr int kBins = kLineDigits + 1;
  __shared__ uint32 met[kLineWarps * kBins / 2];
  const StableRanks<kLineThreads, per_thread, kDigitBits + 1> order{
      reinterpret_cast<unsigned short*>(met), kBins};
  Ranks<per_thread> ranks;
  auto digit_of_word = [&](int i) {
    return static_cast<int>(number_in_block(i, per_thread)) < count
               ? words[i] >> shift & (kLineDigits - 1)
               : static_cast<uint32>(kLineDigits);
  };
  order.find(ranks, per_thread, digit_of_word, [](int, uint32) {});
#pragma unroll
  for (int i = 0; i < per_thread; ++i) ordered[ranks[i]] = words[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < per_thread; ++i) words[i] = ordered[number_in_block(i, per_thread)];
  __syncthreads();
}

// One block for each slot of a chunk: list its entries, and their positions by place.
template <int bits, int per_thread, class Key>
__device__ __forceinline__ void list_chunk(const BucketLists& lists, const Key* keys,
                                           const Key* items, char* shared) {
  constexpr int kChunk = per_thread * kLineThreads;
  static_assert(kChunk <= 1 << kPositionBits && bits + kPositionBits <= 32, "a word is too short");
  uint32* const ordered = reinterpret_cast<uint32*>(shared);
  const int64 slot = blockIdx.x;
  uint32 bucket = 0;
  for (uint32 end = lists.buckets; end > bucket + 1;) {
    const uint32 middle = (bucket + end) / 2;
    (first_slot<kChunk>(lists, middle) <= slot ? bucket : end) = middle;
  }
  if (bucket >= lists.buckets) return;
  const int64 first =
      lists.begins[bucket] + (slot - first_slot<kChunk>(lists, bucket)) * kChunk;
  const int64 left = lists.begins[bucket + 1] - first;
  if (left <= 0) return;
  const int count = static_cast<int>(min(left, static_cast<int64>(kChunk)));

  uint32 words[per_thread];
#pragma unroll
  for (int u = 0; u < per_thread; ++u) {
    const int at = number_in_block(u, per_thread);
    words[u] = 0;
    if (at >= count) continue;
    const uint32 place = static_cast<uint32>(keys[first + at]) & ((1u << bits) - 1);
    words[u] = place << kPositionBits | static_cast<uint32>(at);
    lists.entries[first + at] = static_cast<uint32>(items[first + at]);
  }
  for (int done = 0; done < bits; done += kDigitBits)
    order_by_digit(words, count, kPositionBits + done, ordered);
#pragma unroll
  for (int u = 0; u < per_thread; ++u) {
    const int at = number_in_block(u, per_thread);
    if (at >= count) continue;
    lists.positions[first + at] =
        static_cast<unsigned short>(words[u] & ((1u << kPositionBits) - 1));
  }
  for (uint32 place = threadIdx.x; place < 1u << bits; place += kLineThreads) {
    const int64 end = keys_below(ordered, count, (place + 1) << kPositionBits);
    lists.ends[(slot << bits) + place] = static_cast<unsigned short>(end);
  }
}

// What a block holds of a bucket, in shared memory.
template <class Data, int bits, int per_thread>
struct LineRoom {
  static constexpr int kPlaces = 1 << bits;
  static constexpr int kChunk = per_thread * kLineThreads;
  Accumulate<Data> sums[kPlaces];
  Data values[kChunk];
  uint32 counts[kPlaces];
  uint32 long_runs;
  unsigned short positions[kChunk];
  unsigned short ends[kPlaces];
  unsigned short places_of_long[kChunk / kLongRun];

  __device__ __forceinline__ int begin(int place) const { return place == 0 ? 0 : ends[place - 1]; }
};

// Where the value of an entry stands among the updates of a line.
template <class P>
__device__ __forceinline__ typename P::Offset update_of(const Sizes<P>& sizes,
                                                        typename P::Offset batch,
                                                        typename P::Offset entry,
                                                        typename P::Offset column) {
  typename P::Offset at = P::update_batch ? batch : 0;
  if constexpr (P::update_count) at = at * sizes.count + entry;
  if constexpr (P::update_slice) at = at * sizes.slice + column;
  return at;
}

// Some lines of a bucket, reduced by a block.
template <class P, int bits, int per_thread, bool mean>
struct LineReduction {
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  using Room = LineRoom<Data, bits, per_thread>;
  // Places whose data a thread reads before it writes the first.
  static constexpr int kPlacesAtOnce = sizeof(Data) > 4 ? 4 : 8;
  Room& room;
  const BucketLists& lists;
  const typename P::Updates& updates;
  const Sizes<P>& sizes;
  int64 slot;  // of the chunk
  int64 first;
  int count;
  uint32 entries[per_thread];
  typename P::Updates::Entry parts[per_thread];
  Data held[per_thread];

  // Take the lists of a chunk to where they are read from.
  __device__ __forceinline__ void open(int64 chunk, int64 first_entry, int64 end) {
    slot = chunk, first = first_entry;
    count = static_cast<int>(min(end - first, static_cast<int64>(Room::kChunk)));
    if (threadIdx.x == 0) room.long_runs = 0;
    __syncthreads();
#pragma unroll
    for (int u = 0; u < per_thread; ++u) {
      const int at = u * kLineThreads + threadIdx.x;
      if (at >= count) continue;
      entries[u] = lists.entries[first + at];
      parts[u] = updates.entry(update_of(sizes, 0, static_cast<Offset>(entries[u]), 0));
      room.positions[at] = lists.positions[first + at];
    }
    for (int place = threadIdx.x; place < Room::kPlaces; place += kLineThreads) {
      const int end_of_run = lists.ends[(slot << bits) + place];
      room.ends[place] = static_cast<unsigned short>(end_of_run);
      if (end_of_run - begin_in(slot, place) > kLongRun)
        room.places_of_long[atomicAdd(&room.long_runs, 1u)] = static_cast<unsigned short>(place);
    }
  }
  __device__ __forceinline__ int begin_in(int64 of_slot, int place) const {
    return place == 0 ? 0 : lists.ends[(of_slot << bits) + place - 1];
  }

  // Read the values of a line: they are on their way while others are added up.
  __device__ __forceinline__ void read(int64 line) {
    const Offset batch = static_cast<Offset>(line / sizes.slice);
    const Offset column = static_cast<Offset>(line - batch * sizes.slice);
#pragma unroll
    for (int u = 0; u < per_thread; ++u)
      if (u * kLineThreads + static_cast<int>(threadIdx.x) < count)
        held[u] = updates.at_entry(
            parts[u], update_of(sizes, batch, static_cast<Offset>(entries[u]), column));
  }
  __device__ __forceinline__ void put() {
#pragma unroll
    for (int u = 0; u < per_thread; ++u) {
      const int at = u * kLineThreads + threadIdx.x;
      if (at < count) room.values[at] = held[u];
    }
  }

  // Add the first of `left` values of a run.
  __device__ __forceinline__ Accumulate<Data> add_some(Accumulate<Data> sum, int at,
                                                       int left) const {
    int position[kValuesAtOnce];
    Data value[kValuesAtOnce];
#pragma unroll
    for (int i = 0; i < kValuesAtOnce; ++i)
      if (i < left) position[i] = room.positions[at + i];
#pragma unroll
    for (int i = 0; i < kValuesAtOnce; ++i)
      if (i < left) value[i] = room.values[position[i]];
#pragma unroll
    for (int i = 0; i < kValuesAtOnce; ++i)
      if (i < left) sum = R::combine(sum, widen(value[i]));
    return sum;
  }

  __device__ __forceinline__ void add_runs() {
    using Wide = Accumulate<Data>;
    for (int place = threadIdx.x; place < Room::kPlaces; place += kLineThreads) {
      const int begin = room.begin(place), end = room.ends[place];
      if (begin == end || end - begin > kLongRun) continue;
      Wide sum = room.sums[place];
      for (int at = begin; at < end; at += kValuesAtOnce) sum = add_some(sum, at, end - at);
      room.sums[place] = sum;
    }
    for (uint32 run = threadIdx.x / kWarp; run < room.long_runs; run += kLineWarps) {
      const int place = room.places_of_long[run];
      Wide sum = widen(P::start());
#pragma unroll 4
      for (int at = room.begin(place) + threadIdx.x % kWarp; at < room.ends[place]; at += kWarp)
        sum = R::combine(sum, widen(room.values[room.positions[at]]));
      sum = combine_lanes<R>(sum);
      if (threadIdx.x % kWarp == 0) room.sums[place] = R::combine(room.sums[place], sum);
    }
  }

  __device__ __forceinline__ void write(const typename P::Output& output, const Data* data,
                                        int64 line, uint32 bucket) {
    const Offset batch = static_cast<Offset>(line / sizes.slice);
    const Offset column = static_cast<Offset>(line - batch * sizes.slice);
    const Offset first_place = static_cast<Offset>(static_cast<int64>(bucket) << bits);
    const int places =
        static_cast<int>(min(static_cast<int64>(sizes.extent() - first_place),
                             static_cast<int64>(Room::kPlaces)));
    auto element_of = [&](int place) {
      return (batch * sizes.extent() + first_place + place) * sizes.slice + column;
    };
    for (int start = threadIdx.x; start < places; start += kPlacesAtOnce * kLineThreads) {
      Vector<Data, 1> old[kPlacesAtOnce];
      uint32 found[kPlacesAtOnce];
#pragma unroll
      for (int i = 0; i < kPlacesAtOnce; ++i) {
        const int place = start + i * kLineThreads;
        if (place >= places) break;
        found[i] = room.counts[place];
        if (found[i] ? P::include_self : P::filled || !output.holds(data))
          old[i] = data_at<P, 1>(data, element_of(place));
      }
#pragma unroll
      for (int i = 0; i < kPlacesAtOnce; ++i) {
        const int place = start + i * kLineThreads;
        if (place >= places) break;
        const Vector<Accumulate<Data>, 1> sum{{room.sums[place]}};
        if (found[i]) old[i] = result_of<P, 1, mean>(old[i], sum, found[i]);
        if (found[i] || P::filled || !output.holds(data))
          output.template store<Offset>(element_of(place), old[i]);
      }
    }
  }
};

// One block for each bucket and each group of `lines_each` lines. Where a bucket has a single chunk,
// as most have, its lists are read once, and each line is read while the one before is added up.
template <class P, int bits, int per_thread, bool mean>
__device__ __forceinline__ void reduce_lines(const typename P::Output& output,
                                             const typename P::Data* data,
                                             const BucketLists& lists,
                                             const typename P::Updates& updates,
                                             const Sizes<P>& sizes, int64 lines_each,
                                             char* shared) {
  using Reduction = LineReduction<P, bits, per_thread, mean>;
  using Room = typename Reduction::Room;
  if (lists.buckets == 0) return;
  const uint32 bucket = blockIdx.x % lists.buckets;
  const int64 first_line = blockIdx.x / lists.buckets * lines_each;
  const int64 lines = static_cast<int64>(sizes.batch) * sizes.slice;
  const int64 last_line = min(first_line + lines_each, lines);
  const int64 begin = lists.begins[bucket], end = lists.begins[bucket + 1];
  const int64 slot = first_slot<Room::kChunk>(lists, bucket);
  const int64 chunks = ceil_div(end - begin, static_cast<int64>(Room::kChunk));
  Room& room = *reinterpret_cast<Room*>(shared);
  Reduction reduction{room, lists, updates, sizes};
  for (int place = threadIdx.x; place < Room::kPlaces; place += kLineThreads) {
    uint32 found = 0;
    for (int64 chunk = slot; chunk < slot + chunks; ++chunk)
      found += lists.ends[(chunk << bits) + place] - reduction.begin_in(chunk, place);
    room.counts[place] = found;
  }
  if (chunks == 1 && first_line < last_line) {
    reduction.open(slot, begin, end);
    reduction.read(first_line);
  }
  for (int64 line = first_line; line < last_line; ++line) {
    for (int place = threadIdx.x; place < Room::kPlaces; place += kLineThreads)
      room.sums[place] = widen(P::start());
    for (int64 chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) {
        reduction.open(slot + chunk, begin + chunk * Room::kChunk, end);
        reduction.read(line);
      }
      reduction.put();
      __syncthreads();
      if (chunks == 1 && line + 1 < last_line) reduction.read(line + 1);
      reduction.add_runs();
      __syncthreads();
    }
    reduction.write(output, data, line, bucket);
  }
}

}  // namespace tvm_scatter
#endif
