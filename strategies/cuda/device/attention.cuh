// Attention without a matrix of scores: a block has some queries, and meets the keys and their values
// tile by tile. Of each query it knows the greatest score so far, and sums relative to that one. After
// T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", arXiv
// 2307.08691, 2023.
#ifndef TVM_SCATTER_ATTENTION
#define TVM_SCATTER_ATTENTION
#include "fragments.cuh"
#include "softmax.cuh"

namespace tvm_scatter {

constexpr int kFragment = 16;
constexpr int kAttentionWarps = 4;
// Elements of sixteen bytes. Rows of shared memory are so many longer, so that eight of them begin in
// different banks.
constexpr int kEight = 8;
constexpr float kBinary = 1.44269504f;

// Rows of a tensor for some queries or keys: each has its elements side by side. For heads that share
// keys and values, those of the next head are some elements further on.
template <class T>
struct StridedRows {
  T* first;
  int64 stride, next_head;

  __device__ __forceinline__ T* row(int head, int at) const {
    return first + head * next_head + at * stride;
  }
};

__device__ __forceinline__ float power_of_two(float x) {
#if defined(__CUDA_ARCH__) && !defined(TVM_SCATTER_NO_PTX)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}

// Of the four neighbouring lanes that have elements of one row.
__device__ __forceinline__ float greatest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

template <class Data>
__device__ __forceinline__ uint32 pair_of(float first, float second) {
  return bit_cast<uint32>(narrow<Data, 2>(Vector<float, 2>{{first, second}}));
}

// Some rows of 8 * parts elements to shared memory, and zeros behind them, up to whole fragments.
// Rows from `count` on are zeros, too.
template <int rows, int parts, int threads, class Data>
__device__ __forceinline__ void copy_tile(Data* to, const StridedRows<const Data>& from, int first,
                                          int count, bool is_aligned) {
  constexpr int padded = (parts + 1) / 2 * 2, stride = padded * kEight + kEight;
#pragma unroll
  for (int turn = 0; turn < (rows * padded + threads - 1) / threads; ++turn) {
    const int at = turn * threads + threadIdx.x;
    if (rows * padded % threads != 0 && at >= rows * padded) break;
    const int row = at / padded, part = at % padded;
    const bool is_there = first + row < count && part < parts;
    const Data* origin = from.first;
    if (is_there) origin += (first + row) * from.stride + part * kEight;
    Data* place = to + row * stride + part * kEight;
    if (is_aligned) {
      copy_later(place, origin, is_there);
    } else {
      for (int i = 0; i < kEight; ++i) place[i] = is_there ? origin[i] : narrow<Data>(0.0f);
    }
  }
}

// While nothing is seen, the greatest score is taken for zero, so that all weights are.
__device__ __forceinline__ float known_score(float greatest) {
  return greatest == -infinity<float>() ? 0.0f : greatest;
}

// How much a score counts, relative to another one.
template <class A>
__device__ __forceinline__ float attention_weight(float score, float known) {
  // Scores that are computed may be so great that a factor would make them infinite.
  constexpr float factor = A::factor * kBinary;
  return power_of_two(A::masks_only ? score * factor - known * factor : (score - known) * kBinary);
}

// What a sum of values is multiplied by, given the sum of all weights, which is zero where nothing is seen.
template <class A>
__device__ __forceinline__ float share_of(float total, int keys) {
  if (total != 0.0f) return 1.0f / total;
  return A::empty_is_zero || keys == 0 ? 0.0f : infinity<float>();
}

// What a warp computes for its sixteen queries. A thread has two of these, eight rows apart, and of
// each matrix of 8 columns two neighbours in both.
//
// A describes the problem: the types `Data` and `Out`, the sizes `depth` of queries and keys and
// `width` of values in parts of 8 elements, the `keys` of a tile, and
//   heads         how many heads that share their keys and values are computed together: one, unless
//                 all of their queries are those of one warp,
//   masks_only    whether scores are only left out, and not computed from what the product is,
//   empty_is_zero whether a query that sees no key has a result of zeros, and not of NaN,
//   factor        by which the product is multiplied,
//   score<all>    a score: of a key that every query of the warp sees unless `all`,
//   first, end    the keys that a query may see are from the first on, and before the end. Neither falls
//                 from one query to the next.
template <class A, int tile_keys>
struct AttentionWarp {
  using Data = typename A::Data;
  using Out = typename A::Out;
  static constexpr int kSteps = (A::depth + 1) / 2, kColumns = (A::width + 1) / 2 * 2;
  static constexpr int kDepthStride = kSteps * kFragment + kEight;
  static constexpr int kWidthStride = kColumns * kEight + kEight;
  static constexpr int kScores = tile_keys / 8;

  const A& problem;
  // The rows are those of the first head's queries, then of the next one's.
  const int first_row, queries, keys;
  // The keys that some query of the warp sees, and those that all see.
  int first_of_some, end_of_some, first_of_all, end_of_all;
  uint32 rows[kSteps][4];
  float sums[kColumns][4];
  float greatest[2], total[2];

  __device__ __forceinline__ AttentionWarp(const A& problem, int first_row, int queries, int keys)
      : problem(problem), first_row(first_row), queries(queries), keys(keys) {
    const int first_query = A::heads == 1 ? first_row : 0;
    const int last_query = A::heads == 1 ? min(first_row + kFragment, queries) - 1 : queries - 1;
    const bool has_queries = first_query <= last_query;
    first_of_some = has_queries ? problem.first(first_query, keys) : keys;
    first_of_all = has_queries ? problem.first(last_query, keys) : keys;
    end_of_some = has_queries ? problem.end(last_query, keys) : 0;
    end_of_all = has_queries ? problem.end(first_query, keys) : 0;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[column][i] = 0.0f;
    }
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      greatest[line] = -infinity<float>();
      total[line] = 0.0f;
    }
  }

  __device__ __forceinline__ int row(int line) const {
    return first_row + static_cast<int>(threadIdx.x) % kWarp / 4 + 8 * line;
  }
  __device__ __forceinline__ bool has_row(int line) const { return row(line) < A::heads * queries; }
  __device__ __forceinline__ int head(int line) const {
    return A::heads == 1 ? 0 : min(row(line) / queries, A::heads - 1);
  }
  __device__ __forceinline__ int query(int line) const {
    return A::heads == 1 ? min(row(line), queries - 1) : row(line) % queries;
  }

  __device__ __forceinline__ void load_queries(const StridedRows<const Data>& from) {
    const bool is_aligned = aligned<Data, 2>(from.first);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int part = 2 * step + i / 2;
        Vector<Data, 2> pair = splat<Data, 2>(narrow<Data>(0.0f));
        if (has_row(i % 2) && part < A::depth) {
          const Data* origin =
              from.row(head(i % 2), query(i % 2)) + part * kEight + threadIdx.x % 4 * 2;
          pair = is_aligned ? load<Data, 2>(origin) : Vector<Data, 2>{{origin[0], origin[1]}};
        }
        rows[step][i] = bit_cast<uint32>(pair);
      }
    }
  }

  // Takes the keys of a tile into the sums.
  __device__ __forceinline__ void take(const Data* tile, const Data* values, int first_key) {
    const int end_key = first_key + tile_keys;
    if (first_key >= end_of_some || end_key <= first_of_some) return;
    float scores[kScores][4];
    multiply_with_keys(scores, tile);
    if (end_key <= end_of_all && first_key >= first_of_all) {
      make_scores<false>(scores, first_key);
    } else {
      make_scores<true>(scores, first_key);
    }
    make_weights(scores);
    multiply_with_values(scores, values);
  }

  __device__ __forceinline__ void multiply_with_keys(float (&scores)[kScores][4],
                                                     const Data* tile) const {
#pragma unroll
    for (int part = 0; part < kScores; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[part][i] = 0.0f;
    }
    // No product waits for the one in front of it, which has other keys.
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kScores / 2; ++pair) {
        uint32 columns[4];
        load_matrices<false, false>(
            columns, tile + pair * kFragment * kDepthStride + step * kFragment, kDepthStride);
        multiply_matrices<Data>(scores[2 * pair], rows[step], columns[0], columns[1]);
        multiply_matrices<Data>(scores[2 * pair + 1], rows[step], columns[2], columns[3]);
      }
    }
  }

  template <bool all>
  __device__ __forceinline__ void make_scores(float (&scores)[kScores][4], int first_key) const {
    const int queries_here[2] = {query(0), query(1)}, heads_here[2] = {head(0), head(1)};
#pragma unroll
    for (int part = 0; part < kScores; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * part + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        const float product = A::masks_only ? scores[part][i] : scores[part][i] * problem.factor;
        const int known = all ? min(key, keys - 1) : key;
        const float score =
            problem.template score<all>(product, queries_here[i / 2], known, heads_here[i / 2]);
        scores[part][i] = all && key >= keys ? -infinity<float>() : score;
      }
    }
  }

  __device__ __forceinline__ void make_weights(float (&scores)[kScores][4]) {
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      float highest = greatest[line];
#pragma unroll
      for (int part = 0; part < kScores; ++part) {
        highest = fmaxf(highest, fmaxf(scores[part][2 * line], scores[part][2 * line + 1]));
      }
      highest = greatest_of_row(highest);
      const float least = known_score(highest);
      const float less = attention_weight<A>(greatest[line], least);
      greatest[line] = highest;
      total[line] *= less;
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        sums[column][2 * line] *= less;
        sums[column][2 * line + 1] *= less;
      }
#pragma unroll
      for (int part = 0; part < kScores; ++part) {
#pragma unroll
        for (int i = 2 * line; i < 2 * line + 2; ++i) {
          scores[part][i] = attention_weight<A>(scores[part][i], least);
          total[line] += scores[part][i];
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_with_values(const float (&weights)[kScores][4],
                                                       const Data* values) {
#pragma unroll
    for (int pair = 0; pair < kScores / 2; ++pair) {
      uint32 left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& from = weights[2 * pair + i / 2];
        left[i] = pair_of<Data>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int column = 0; column < kColumns; column += 2) {
        uint32 right[4];
        load_matrices<true, true>(
            right, values + pair * kFragment * kWidthStride + column * kEight, kWidthStride);
        multiply_matrices<Data>(sums[column], left, right[0], right[1]);
        multiply_matrices<Data>(sums[column + 1], left, right[2], right[3]);
      }
    }
  }

  __device__ __forceinline__ void write(const StridedRows<Out>& to) const {
    const bool is_aligned = aligned<Out, 2>(to.first);
#pragma unroll
    for (int line = 0; line < 2; ++line) {
      const float share = share_of<A>(sum_of_row(total[line]), keys);
      if (!has_row(line)) continue;
      Out* row = to.row(head(line), query(line)) + threadIdx.x % 4 * 2;
#pragma unroll
      for (int column = 0; column < A::width; ++column) {
        const Vector<float, 2> wide{
            {sums[column][2 * line] * share, sums[column][2 * line + 1] * share}};
        const Vector<Out, 2> pair = narrow<Out, 2>(wide);
        if (is_aligned) {
          store<Out, 2>(row + column * kEight, pair);
        } else {
          for (int i = 0; i < 2; ++i) row[column * kEight + i] = pair.at[i];
        }
      }
    }
  }
};

// Of rows that some have parts of, each number relative to the greatest score of all. For each row there
// are that score, a sum of weights, and sums of values; a part is `stride` numbers behind the one before.
template <class A, class Put>
__device__ __forceinline__ void put_together(const float* parts, int stride, int count, int rows,
                                             const Put& put) {
  constexpr int numbers = A::width * kEight + 2, threads = kAttentionWarps * kWarp;
  for (int at = threadIdx.x; at < rows * numbers; at += threads) {
    const int row = at / numbers;
    float greatest = -infinity<float>(), sum = 0.0f;
    for (int part = 0; part < count; ++part) {
      greatest = fmaxf(greatest, parts[part * stride + row * numbers]);
    }
    const float known = known_score(greatest);
    for (int part = 0; part < count; ++part) {
      const float* of_part = parts + part * stride + row * numbers;
      sum += attention_weight<A>(of_part[0], known) * of_part[at % numbers];
    }
    put(row, at % numbers, greatest, sum);
  }
}

// Tiles of keys and values in shared memory. Others are on their way while one is read.
template <class A>
struct AttentionTiles {
  using Data = typename A::Data;
  using Warp = AttentionWarp<A, A::keys>;
  static constexpr int kThreads = kAttentionWarps * kWarp;
  static constexpr int kOfKeys = A::keys * Warp::kDepthStride;
  static constexpr int kOfValues = A::keys * Warp::kWidthStride;

  const StridedRows<const Data>& key;
  const StridedRows<const Data>& value;
  const int keys;
  Data* const shared;

  // Calls `take` for the keys of each tile from one on, up to an end.
  template <class Take>
  __device__ __forceinline__ void each(int begin, int end, const Take& take) const {
    const bool is_aligned = aligned<Data, kEight>(key.first) && aligned<Data, kEight>(value.first);
    const auto copy = [&](int first_key, int stage) {
      Data* tile = shared + stage * (kOfKeys + kOfValues);
      copy_tile<A::keys, A::depth, kThreads>(tile, key, first_key, keys, is_aligned);
      copy_tile<A::keys, A::width, kThreads>(tile + kOfKeys, value, first_key, keys, is_aligned);
    };
    if (begin < end) copy(begin, 0);
    int stage = 0;
    for (int first_key = begin; first_key < end; first_key += A::keys) {
      wait_for_copies();
      if (first_key + A::keys < end) copy(first_key + A::keys, 1 - stage);
      const Data* tile = shared + stage * (kOfKeys + kOfValues);
      take(tile, tile + kOfKeys, first_key);
      stage = 1 - stage;
    }
  }
};

// The queries of one block, of which each warp has sixteen.
template <class A>
__device__ __forceinline__ void attend(const A& problem, const StridedRows<typename A::Out>& out,
                                       const StridedRows<const typename A::Data>& query,
                                       const StridedRows<const typename A::Data>& key,
                                       const StridedRows<const typename A::Data>& value,
                                       int first_query, int queries, int keys, void* shared) {
  using Data = typename A::Data;
  const AttentionTiles<A> tiles{key, value, keys, static_cast<Data*>(shared)};
  const int last_query = min(first_query + kAttentionWarps * kFragment, queries) - 1;
  const int begin = problem.first(first_query, keys) / A::keys * A::keys;
  const int end = problem.end(last_query, keys);
  AttentionWarp<A, A::keys> warp(problem, first_query + threadIdx.x / kWarp * kFragment, queries,
                                 keys);
  warp.load_queries(query);
  tiles.each(begin, end, [&](const Data* tile, const Data* values, int first_key) {
    warp.take(tile, values, first_key);
  });
  warp.write(out);
}

// A part of the keys, for so few queries that they are the rows of each warp. The warps have a quarter
// of each tile. To `parts` goes, for each row, the greatest score, the sum of all weights and those of
// the values, all relative to that score.
template <class A>
__device__ __forceinline__ void attend_to_part(const A& problem, float* parts,
                                               const StridedRows<const typename A::Data>& query,
                                               const StridedRows<const typename A::Data>& key,
                                               const StridedRows<const typename A::Data>& value,
                                               int queries, int keys, int part, int count,
                                               void* shared) {
  using Data = typename A::Data;
  constexpr int tile_keys = A::keys / kAttentionWarps, wide = A::width * kEight;
  using Warp = AttentionWarp<A, tile_keys>;
  static_assert(tile_keys % kFragment == 0, "a warp has whole fragments");
  const AttentionTiles<A> tiles{key, value, keys, static_cast<Data*>(shared)};
  const int mine = static_cast<int>(threadIdx.x) / kWarp;
  const int begin = problem.first(0, keys) / A::keys;
  const int all = max(ceil_div(problem.end(queries - 1, keys), A::keys) - begin, 0);
  const int first = begin + static_cast<int>(static_cast<int64>(all) * part / count);
  const int last = begin + static_cast<int>(static_cast<int64>(all) * (part + 1) / count);
  Warp warp(problem, 0, queries, keys);
  warp.load_queries(query);
  tiles.each(first * A::keys, last * A::keys,
             [&](const Data* tile, const Data* values, int first_key) {
               warp.take(tile + mine * tile_keys * Warp::kDepthStride,
                         values + mine * tile_keys * Warp::kWidthStride,
                         first_key + mine * tile_keys);
             });
  // What the warps have is put together where the tiles were.
  __syncthreads();
  float* of_warp = static_cast<float*>(shared) + mine * kFragment * (wide + 2);
#pragma unroll
  for (int line = 0; line < 2; ++line) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float* row = of_warp + warp.row(line) * (wide + 2);
    const float total = sum_of_row(warp.total[line]);
    if (lane % 4 == 0) {
      row[0] = warp.greatest[line];
      row[1] = total;
    }
#pragma unroll
    for (int column = 0; column < A::width; ++column) {
      for (int i = 0; i < 2; ++i) {
        row[2 + column * kEight + lane % 4 * 2 + i] = warp.sums[column][2 * line + i];
      }
    }
  }
  __syncthreads();
  put_together<A>(static_cast<const float*>(shared), kFragment * (wide + 2), kAttentionWarps,
                  A::heads * queries, [&](int row, int at, float greatest, float sum) {
                    parts[row * (wide + 2) + at] = at == 0 ? greatest : sum;
                  });
}

// The result of the few queries, of which parts of the keys are known.
template <class A>
__device__ __forceinline__ void attend_to_parts(const StridedRows<typename A::Out>& out,
                                                const float* parts, int queries, int keys,
                                                int count, void* shared) {
  using Out = typename A::Out;
  constexpr int wide = A::width * kEight;
  const int rows = A::heads * queries;
  float* shares = static_cast<float*>(shared);
  put_together<A>(parts, rows * (wide + 2), count, rows,
                  [&](int row, int at, float, float sum) {
                    if (at == 1) shares[row] = share_of<A>(sum, keys);
                  });
  __syncthreads();
  put_together<A>(parts, rows * (wide + 2), count, rows, [&](int row, int at, float, float sum) {
    if (at > 1) {
      out.row(row / queries, row % queries)[at - 2] = narrow<Out>(sum * shares[row]);
    }
  });
}

}  // namespace tvm_scatter
#endif
