// The places of the smallest elements of lines, in ascending order, equal ones as they come. How
// small the greatest of them is, is found by halving the numbers between the least and the greatest
// element; so a line is read several times, and never sorted.
#ifndef TVM_SCATTER_SMALLEST
#define TVM_SCATTER_SMALLEST
#include "team.cuh"

namespace tvm_scatter {

constexpr int kSelectWarps = 4;
constexpr int kSelectThreads = kSelectWarps * kWarp;
// So many elements of a long line are kept apart from it.
constexpr int kSelectEnough = 1024;

// A line of a tensor, or a part of one that begins at a place. Its elements are `stride` apart. Of lines
// with up to `held` elements for each thread, threads keep theirs, and the greatest number for what is
// behind the line. A line of elements that were picked out knows their `places`.
template <class Key, int threads, int held>
struct Line {
  static constexpr Key kGreatest = static_cast<Key>(~static_cast<Bits<Key>>(0) >> 1);

  const Key* from;
  int64 length, stride;
  const int64* places;
  int64 begin;
  Key kept[held > 0 ? held : 1];

  __device__ __forceinline__ Line(const Key* from, int64 length, int64 stride, int thread,
                                  const int64* places = nullptr, int64 begin = 0)
      : from(from), length(length), stride(stride), places(places), begin(begin) {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const int64 at = thread + i * threads;
      kept[i] = at < length ? from[at * stride] : kGreatest;
    }
  }

  __device__ __forceinline__ int64 place(int64 at) const { return places ? places[at] : begin + at; }

  // How many elements of a thread are up to a limit, which is less than the greatest number.
  __device__ __forceinline__ uint32 up_to(int thread, Key limit) const {
    uint32 found = 0;
    if constexpr (held > 0) {
#pragma unroll
      for (const Key key : kept) found += key <= limit;
    } else {
      each(thread, [&](Key key) { found += key <= limit; });
    }
    return found;
  }

  // Calls `visit(key)` for the elements of a thread.
  template <class Visit>
  __device__ __forceinline__ void each(int thread, Visit visit) const {
    if constexpr (held > 0) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const int64 at = thread + i * threads;
        if (at < length) visit(kept[i]);
      }
    } else {
      for (int64 at = thread; at < length; at += threads) visit(from[at * stride]);
    }
  }
};

// Which elements are taken: those below `limit`, and the first `ties` of those equal to it.
template <class Key>
struct Selected {
  Key limit;
  uint32 ties, count;
};

// The `count` smallest elements of a line, which has at least as many; or more of them, up to
// `enough`, where that many are found first.
template <class Key, int threads, int held>
__device__ __forceinline__ Selected<Key> smallest_of(const Line<Key, threads, held>& line,
                                                     Team<threads>& team, uint32 count,
                                                     uint32 enough) {
  using Unsigned = typename BitsOf<sizeof(Key)>::type;
  Key least = line.from[0], greatest = least;
  line.each(team.thread, [&](Key key) {
    least = key < least ? key : least;
    greatest = key > greatest ? key : greatest;
  });
  least = team.all(least, [](Key a, Key b) { return a < b ? a : b; });
  greatest = team.all(greatest, [](Key a, Key b) { return a > b ? a : b; });
  int64 below = 0, up_to = line.length;
  while (least < greatest && up_to > enough) {
    const Unsigned distance = static_cast<Unsigned>(greatest) - static_cast<Unsigned>(least);
    const Key middle = static_cast<Key>(static_cast<Unsigned>(least) + distance / 2);
    const uint32 found = team.sum(line.up_to(team.thread, middle));
    if (found >= count) {
      greatest = middle;
      up_to = found;
    } else {
      least = middle + 1;
      below = found;
    }
  }
  // Where so many elements are equal that no limit parts them, the first ones are taken.
  if (up_to <= enough) return {greatest, static_cast<uint32>(up_to), static_cast<uint32>(up_to)};
  return {greatest, static_cast<uint32>(count - below), count};
}

// The elements that are taken and their places, as they come.
template <class Key, int threads, int held>
__device__ __forceinline__ void list_taken(const Line<Key, threads, held>& line,
                                           const Team<threads>& team, const Selected<Key>& taken,
                                           Key* keys, int64* places) {
  uint32 below = 0, ties = 0;
  for (int64 first = 0; first < line.length; first += threads) {
    const int64 at = first + team.thread;
    const bool inside = at < line.length;
    const Key key = inside ? line.from[at * line.stride] : Key{0};
    const bool less = inside && key < taken.limit, tie = inside && key == taken.limit;
    // The two counts of a turn fit 16 bits.
    uint32 all;
    const uint32 before = team.before(less | static_cast<uint32>(tie) << 16, all);
    const uint32 earlier = min(ties + (before >> 16), taken.ties);
    if (less || (tie && earlier < taken.ties)) {
      const uint32 to = below + (before & 0xffff) + earlier;
      keys[to] = key;
      places[to] = line.place(at);
    }
    below += all & 0xffff;
    ties = min(ties + (all >> 16), taken.ties);
    if (below + ties == taken.count) break;
  }
  team.wait();
}

// For the threads of one line: the places of its `count` smallest elements.
template <int most, class Place, class Key, int threads, int held>
__device__ __forceinline__ void smallest_of_line(Place* out, int64 stride,
                                                 const Line<Key, threads, held>& line,
                                                 uint32 count, Key* keys, int64* places) {
  Team<threads> team;
  if constexpr (held > 0) {
    list_taken(line, team, smallest_of(line, team, count, count), keys, places);
  } else {
    // What is left of a line when few elements are is no longer read from it.
    __shared__ Key left[kSelectEnough];
    __shared__ int64 places_left[kSelectEnough];
    const Selected<Key> first = smallest_of(line, team, count, kSelectEnough);
    list_taken(line, team, first, left, places_left);
    const Line<Key, threads, 0> rest(left, first.count, 1, team.thread, places_left);
    list_taken(rest, team, smallest_of(rest, team, count, count), keys, places);
  }
  for (uint32 i = team.thread; i < count; i += threads) {
    const Key key = keys[i];
    uint32 rank = 0;
    for (uint32 j = 0; j < count; ++j) rank += keys[j] < key || (keys[j] == key && j < i);
    out[rank * stride] = static_cast<Place>(places[i]);
  }
  for (uint32 i = count + team.thread; i < most; i += threads) out[i * stride] = 0;
}

// For a tensor of shape (outer, length, inner): the places of the `most` smallest elements along its
// length, or of all if it has fewer. `threads` threads take a line, and a block several. Elements that
// were picked out lie side by side, and `picked` are their places.
template <int threads, int held, int most, class Place, class Key>
__device__ __forceinline__ void smallest(Place* out, const Key* data, int64 outer, int64 length,
                                         int64 inner, const int64* picked = nullptr) {
  constexpr int kLines = threads < kSelectThreads ? kSelectThreads / threads : 1;
  static_assert(most <= kSelectEnough, "more elements are wanted than are kept");
  __shared__ Key keys[kLines][most];
  __shared__ int64 places[kLines][most];
  const int mine = threadIdx.x / threads;
  const int64 number = static_cast<int64>(blockIdx.x) * kLines + mine;
  if (number >= outer * inner) return;
  const int64 before = number / inner, column = number % inner;
  const int64 first = picked ? number * length : before * length * inner + column;
  const Line<Key, threads, held> line(data + first, length, picked ? 1 : inner,
                                      threadIdx.x % threads, picked ? picked + first : nullptr);
  smallest_of_line<most>(out + before * most * inner + column, inner, line,
                         static_cast<uint32>(length < most ? length : most), keys[mine],
                         places[mine]);
}

// A block for each of the `parts` of a line, none of which has fewer than `count` elements: the smallest
// ones and their places, side by side.
template <int threads, int held, class Key>
__device__ __forceinline__ void smallest_of_parts(Key* keys, int64* places, const Key* data,
                                                  int64 length, int64 inner, int64 parts,
                                                  uint32 count) {
  const int64 number = blockIdx.x, line = number / parts, part = number % parts;
  const int64 begin = length * part / parts, end = length * (part + 1) / parts;
  const Key* const from = data + (line / inner * length + begin) * inner + line % inner;
  const Line<Key, threads, held> own(from, end - begin, inner, threadIdx.x, nullptr, begin);
  Team<threads> team;
  list_taken(own, team, smallest_of(own, team, count, count), keys + number * count,
             places + number * count);
}

}  // namespace tvm_scatter
#endif
