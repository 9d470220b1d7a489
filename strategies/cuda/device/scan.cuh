// Scans along an axis: each result combines the elements up to its own.
//
// A strip is a line along the axis, or up to 32 of them whose elements lie side by side. A warp holds
// some rows of a strip. Where there are few strips, a block holds a tile of one, and learns what its
// tile begins with from the tiles before it, while they are written: one pass over memory. D. Merrill
// and M. Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016), combine what is
// ready first, so that sums of floats differ from run to run. Here sums are combined in fixed groups:
// of 32 tiles, of 32 such groups, and of all before those.
#ifndef TVM_SCATTER_SCAN
#define TVM_SCATTER_SCAN
#include "running.cuh"

namespace tvm_scatter {

constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarp;
// Tiles of a group, and groups of a cluster: a lane waits for each.
constexpr int kScanGroup = 32;

// A value of another lane: `move` brings a word of it.
template <class T, class Move>
__device__ __forceinline__ T of_lane(const T& value, Move move) {
  if constexpr (sizeof(T) < sizeof(uint32)) {
    return bit_cast<T>(static_cast<Bits<T>>(move(bit_cast<Bits<T>>(value))));
  } else {
    auto words = bit_cast<Vector<uint32, sizeof(T) / sizeof(uint32)>>(value);
#pragma unroll
    for (auto& word : words.at) word = move(word);
    return bit_cast<T>(words);
  }
}

// Lines of `length` elements, `row_stride` apart. There are `columns` neighbouring lines,
// `column_stride` apart, in each of `batch` parts of the tensor.
struct Lines {
  int64 batch, length, columns, row_stride, column_stride;

  __device__ __forceinline__ int64 strips_of_part() const {
    return ceil_div(columns, static_cast<int64>(kWarp));
  }
  __device__ __forceinline__ int64 strips() const { return batch * strips_of_part(); }
};

// How lanes lie on a strip: in rows of as many as it has columns.
template <class S>
struct Lanes {
  using Value = typename S::Value;
  int lane, columns, rows, row, column;

  __device__ __forceinline__ explicit Lanes(const Lines& lines)
      : lane(threadIdx.x % kWarp),
        columns(lines.columns < kWarp ? static_cast<int>(lines.columns) : kWarp),
        rows(kWarp / columns),
        row(lane / columns),
        column(lane % columns) {}

  // Combines this column's values in the rows up to this one.
  __device__ __forceinline__ Value inclusive(Value value) const {
#pragma unroll
    for (int distance = columns; distance < kWarp; distance *= 2) {
      const Value earlier = of_lane(
          value, [&](uint32 word) { return __shfl_up_sync(kAllLanes, word, distance); });
      if (lane >= distance) value = S::combine(earlier, value);
    }
    return value;
  }
  __device__ __forceinline__ Value of_row_before(Value value) const {
    value = of_lane(value,
                    [&](uint32 word) { return __shfl_up_sync(kAllLanes, word, columns); });
    return row == 0 ? S::none() : value;
  }
  __device__ __forceinline__ Value of_last_row(Value value) const {
    const int last = (rows - 1) * columns + column;
    return of_lane(value, [&](uint32 word) { return __shfl_sync(kAllLanes, word, last); });
  }
};

// The lines of one strip, for a lane. With vectors of several elements it is one line, which begins
// `shift` elements behind the address of a vector.
template <class S, int vector>
struct Strip {
  const typename S::In* from;
  typename S::Out* to;
  int64 length, stride;
  int shift;
  bool exists, aligned;

  __device__ __forceinline__ Strip(const typename S::In* in, typename S::Out* out,
                                   const Lines& lines, const Lanes<S>& lanes, int64 number)
      : length(lines.length), stride(vector > 1 ? 1 : lines.row_stride) {
    const int64 parts = vector > 1 ? 1 : lines.strips_of_part();
    const int64 column = number % parts * kWarp + lanes.column;
    const int64 begin = number / parts * lines.length * lines.columns + column * lines.column_stride;
    from = in + begin;
    to = out + begin;
    shift = vector > 1 ? static_cast<int>(begin % vector) : 0;
    exists = lanes.row < lanes.rows && column < lines.columns;
    aligned = tvm_scatter::aligned<typename S::In, vector>(in) &&
              tvm_scatter::aligned<typename S::Out, vector>(out);
  }
  __device__ __forceinline__ bool has_all(int64 at) const {
    return vector > 1 && aligned && at >= 0 && at + vector <= length;
  }
  __device__ __forceinline__ bool has(int64 at) const { return exists && at >= 0 && at < length; }
};

// Some rows of a strip in the registers of a warp.
template <class S, int vector, int steps>
struct Rows {
  using Value = typename S::Value;
  Value held[steps][vector], before[steps];

  static __device__ __forceinline__ int64 count(const Lanes<S>& lanes) {
    return steps * lanes.rows * vector;
  }

  __device__ __forceinline__ void load(const Strip<S, vector>& strip, const Lanes<S>& lanes,
                                       int64 first) {
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const int64 at = first + (s * lanes.rows + lanes.row) * vector;
      if (strip.has_all(at)) {
        const auto loaded = load_once<typename S::In, vector>(strip.from + at);
#pragma unroll
        for (int i = 0; i < vector; ++i) held[s][i] = S::value(loaded.at[i]);
      } else {
#pragma unroll
        for (int i = 0; i < vector; ++i)
          held[s][i] = strip.has(at + i) ? S::value(strip.from[(at + i) * strip.stride]) : S::none();
      }
    }
  }

  // Finds what stands before each step, and returns what all rows combine to, for each column.
  __device__ __forceinline__ Value scan(const Lanes<S>& lanes) {
    Value all = S::none();
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      Value own = held[s][0];
#pragma unroll
      for (int i = 1; i < vector; ++i) own = S::combine(own, held[s][i]);
      const Value inclusive = lanes.inclusive(own);
      before[s] = S::combine(all, lanes.of_row_before(inclusive));
      all = S::combine(all, lanes.of_last_row(inclusive));
    }
    return all;
  }

  template <bool exclusive>
  __device__ __forceinline__ void store(const Strip<S, vector>& strip, const Lanes<S>& lanes,
                                        int64 first, Value earlier) const {
    using Out = typename S::Out;
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const int64 at = first + (s * lanes.rows + lanes.row) * vector;
      Value running = S::combine(earlier, before[s]);
      Vector<Out, vector> results;
#pragma unroll
      for (int i = 0; i < vector; ++i) {
        const Value next = S::combine(running, held[s][i]);
        results.at[i] = S::result(exclusive ? running : next);
        running = next;
      }
      if (strip.has_all(at)) {
        tvm_scatter::store<Out, vector>(strip.to + at, results);
      } else {
#pragma unroll
        for (int i = 0; i < vector; ++i)
          if (strip.has(at + i)) strip.to[(at + i) * strip.stride] = results.at[i];
      }
    }
  }
};

// What tiles of a strip tell those behind them. A slot holds a value of each column, once its flag is
// set. There is a slot for each tile, for each group of tiles, and for all before each cluster.
template <class S>
struct Slots {
  using Value = typename S::Value;
  const Lanes<S>& lanes;
  uint32* flags;
  Value* values;

  static __device__ __forceinline__ int64 groups(int64 tiles) {
    return ceil_div(tiles, static_cast<int64>(kScanGroup));
  }
  static __device__ __forceinline__ int64 number(int64 tiles) {
    return tiles + groups(tiles) + groups(groups(tiles)) + 1;
  }

  __device__ __forceinline__ void tell(int64 slot, Value value) const {
    if (lanes.lane < lanes.columns) values[slot * lanes.columns + lanes.lane] = value;
    __threadfence();
    __syncwarp();
    if (lanes.lane == 0) *const_cast<volatile uint32*>(flags + slot) = 1;
  }
  // Combines some neighbouring slots, no more than there are lanes.
  __device__ __forceinline__ Value ask(int64 first, int count) const {
    if (lanes.lane < count) {
      while (*const_cast<volatile uint32*>(flags + first + lanes.lane) == 0) {
      }
    }
    __threadfence();
    __syncwarp();
    Value value = S::none();
    for (int i = lanes.row; i < count && lanes.row < lanes.rows; i += lanes.rows)
      value = S::combine(value, written(values + (first + i) * lanes.columns + lanes.column));
    return lanes.of_last_row(lanes.inclusive(value));
  }

 private:
  // What another block has written lately: the first cache of a processor does not know of it.
  static __device__ __forceinline__ Value written(const Value* at) {
    using Word = typename If<sizeof(Value) < sizeof(uint32), Bits<Value>, uint32>::type;
    Vector<Word, sizeof(Value) / sizeof(Word)> words;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Value) / sizeof(Word)); ++i)
      words.at[i] = __ldcg(reinterpret_cast<const Word*>(at) + i);
    return bit_cast<Value>(words);
  }
};

// A warp for each strip, from its beginning to its end.
template <class S, int vector, int steps, bool exclusive>
__device__ __forceinline__ void scan_by_warps(typename S::Out* out, const typename S::In* in,
                                              const Lines& lines) {
  const int64 number = static_cast<int64>(blockIdx.x) * kScanWarps + threadIdx.x / kWarp;
  if (number >= lines.strips()) return;
  const Lanes<S> lanes(lines);
  const Strip<S, vector> strip(in, out, lines, lanes, number);
  Rows<S, vector, steps> rows;
  typename S::Value earlier = S::none();
  for (int64 first = -strip.shift; first < lines.length; first += rows.count(lanes)) {
    rows.load(strip, lanes, first);
    const auto all = rows.scan(lanes);
    rows.template store<exclusive>(strip, lanes, first, earlier);
    earlier = S::combine(earlier, all);
  }
}

// For all threads: what `slots` counts as told becomes untold, and tiles are numbered from zero.
__device__ __forceinline__ void begin_tiles(uint32* flags, int64 count) {
  const int64 step = static_cast<int64>(gridDim.x) * kScanThreads;
  for (int64 i = static_cast<int64>(blockIdx.x) * kScanThreads + threadIdx.x; i < count; i += step)
    flags[i] = 0;
}

// A block for each of the `tiles` of each strip. `flags` begins with the number of the next tile, and
// is as long as `begin_tiles` has made it; `values` is the memory of the slots.
template <class S, int vector, int steps, bool exclusive>
__device__ __forceinline__ void scan_by_tiles(typename S::Out* out, const typename S::In* in,
                                              uint32* flags, void* values, const Lines& lines,
                                              int64 tiles) {
  using Value = typename S::Value;
  __shared__ Value of_warps[kScanWarps][kWarp];
  __shared__ Value of_earlier[3][kWarp];
  __shared__ uint32 next;
  // In the order in which blocks begin, so that all earlier tiles have begun.
  if (threadIdx.x == 0) next = atomicAdd(flags, 1u);
  __syncthreads();
  const int64 strips = lines.strips(), tile = next / strips, number = next % strips;
  const int warp = threadIdx.x / kWarp;
  const Lanes<S> lanes(lines);
  const Strip<S, vector> strip(in, out, lines, lanes, number);
  Rows<S, vector, steps> rows;
  const int64 first = (tile * kScanWarps + warp) * rows.count(lanes) - strip.shift;
  rows.load(strip, lanes, first);
  const Value of_warp = rows.scan(lanes);
  if (lanes.lane < lanes.columns) of_warps[warp][lanes.lane] = of_warp;
  __syncthreads();
  Value earlier = S::none(), all = S::none();
#pragma unroll
  for (int w = 0; w < kScanWarps; ++w) {
    const Value value = of_warps[w][lanes.column];
    if (w < warp) earlier = S::combine(earlier, value);
    all = S::combine(all, value);
  }

  const int64 begin = number * Slots<S>::number(tiles);
  const Slots<S> slots{lanes, flags + 1 + begin,
                       static_cast<Value*>(values) + begin * lanes.columns};
  const int64 group = tile / kScanGroup, cluster = group / kScanGroup;
  const int64 groups = tiles, clusters = tiles + Slots<S>::groups(tiles);
  const int in_group = static_cast<int>(tile % kScanGroup);
  const int in_cluster = static_cast<int>(group % kScanGroup);
  if (warp < 3) {
    Value told = S::none();
    if (warp == 0) {
      slots.tell(tile, all);
      told = slots.ask(group * kScanGroup, in_group);
      if (in_group == kScanGroup - 1) slots.tell(groups + group, S::combine(told, all));
    } else if (warp == 1) {
      told = slots.ask(groups + cluster * kScanGroup, in_cluster);
    } else {
      told = slots.ask(clusters + cluster, cluster > 0);
    }
    if (lanes.lane < lanes.columns) of_earlier[warp][lanes.lane] = told;
  }
  __syncthreads();
  Value before = of_earlier[2][lanes.column];
  before = S::combine(before, of_earlier[1][lanes.column]);
  before = S::combine(before, of_earlier[0][lanes.column]);
  if (warp == 0 && in_group == kScanGroup - 1 && in_cluster == kScanGroup - 1)
    slots.tell(clusters + cluster + 1, S::combine(before, all));
  rows.template store<exclusive>(strip, lanes, first, S::combine(before, earlier));
}

}  // namespace tvm_scatter
#endif
