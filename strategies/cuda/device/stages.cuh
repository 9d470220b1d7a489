// The steps around a reduction: the initial copy, the reset of touched places, counting, dividing.
#ifndef TVM_SCATTER_STAGES
#define TVM_SCATTER_STAGES
#include "grid.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

constexpr int kCopyUnroll = 2;

// Copy `bytes` bytes: 16 at a time, two of them in flight for each thread.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, int64 bytes) {
  const int64 block = blockIdx.x;
  const int thread = threadIdx.x, threads = blockDim.x;
  const int64 vectors =
      ((reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from)) & 15) == 0 ? bytes / 16 : 0;
  const int64 first = block * threads * kCopyUnroll + thread;
  uint4 held[kCopyUnroll];
#pragma unroll
  for (int i = 0; i < kCopyUnroll; ++i) {
    const int64 at = first + static_cast<int64>(i) * threads;
    if (at < vectors) held[i] = reinterpret_cast<const uint4*>(from)[at];
  }
#pragma unroll
  for (int i = 0; i < kCopyUnroll; ++i) {
    const int64 at = first + static_cast<int64>(i) * threads;
    if (at < vectors) reinterpret_cast<uint4*>(to)[at] = held[i];
  }
  // What 16-byte accesses leave over: the tail, or everything where a tensor is not aligned.
  const int64 begin = vectors * 16 + block * threads * kCopyUnroll * 16;
  const int64 end = vectors == 0 ? min(bytes, begin + int64(threads) * kCopyUnroll * 16) : bytes;
  if (vectors == 0 || block == 0) {
    for (int64 at = (vectors == 0 ? begin : vectors * 16) + thread; at < end; at += threads)
      static_cast<char*>(to)[at] = static_cast<const char*>(from)[at];
  }
}

// Fill the output: 16 bytes at a time, as many at once as where it is copied.
template <class P>
__device__ __forceinline__ void fill_output(typename P::Data* out, int64 size) {
  using Data = typename P::Data;
  constexpr int vector = 16 / sizeof(Data);
  const auto value = splat<Data, vector>(P::fill());
  const int threads = blockDim.x;
  const int64 first = static_cast<int64>(blockIdx.x) * threads * kCopyUnroll + threadIdx.x;
  const bool whole = aligned<Data, vector>(out);
#pragma unroll
  for (int i = 0; i < kCopyUnroll; ++i) {
    const int64 at = (first + static_cast<int64>(i) * threads) * vector;
    if (whole && at + vector <= size) {
      store<Data, vector>(out + at, value);
    } else {
      for (int64 one = at; one < size && one < at + vector; ++one) out[one] = P::fill();
    }
  }
}

// Compute what follows from what stands in the output, in the same place. In a grid-stride loop,
// because single elements take more threads than vectors.
template <class P, int vector>
__device__ __forceinline__ void finish_output(const typename P::Output& output,
                                              const typename P::Data* own, int64 size) {
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  for (int64 turn = first_in_grid(); turn * vector < size; turn += threads_in_grid() * kCopyUnroll) {
    Vector<Data, vector> held[kCopyUnroll];
#pragma unroll
    for (int i = 0; i < kCopyUnroll; ++i) {
      const int64 at = (turn + i * threads_in_grid()) * vector;
      if (at + vector <= size) held[i] = load<Data, vector>(own + at);
    }
#pragma unroll
    for (int i = 0; i < kCopyUnroll; ++i) {
      const int64 at = (turn + i * threads_in_grid()) * vector;
      if (at + vector <= size) output.template store<Offset>(at, held[i]);
    }
  }
  const int64 rest = size - size % vector + first_in_grid();
  if (vector > 1 && rest < size) output.template store<Offset>(rest, load<Data, 1>(own + rest));
}

// Write the identity to every place that an update goes to.
template <class P>
__device__ __forceinline__ void reset_touched(typename P::Data* out, const Indices<P>& indices,
                                              const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  const Offset width = sizes.width();
  const int64 total = static_cast<int64>(sizes.items()) * width;
  for (int64 at = first_in_grid(); at < total; at += threads_in_grid()) {
    const Offset index = static_cast<Offset>(at / width);
    const Item<P> item(sizes, index);
    Offset destination;
    if (!find_destination(sizes, indices, item.index, destination)) continue;
    const Offset column = static_cast<Offset>(at - static_cast<int64>(index) * width);
    out[item.place(sizes, destination) * width + column] = P::start();
  }
}

template <class P>
__device__ __forceinline__ void count_updates(uint32* counts, const Indices<P>& indices,
                                              const Sizes<P>& sizes) {
  for_each_place<P, 4>(indices, sizes, [&](int64, typename P::Offset place) {
    if (place < sizes.destinations()) atomicAdd(counts + place, 1u);
  });
}

// TVM compiles with fast math, in which `/` of floats is off by up to two units in the last place.
__device__ __forceinline__ float quotient_of(float numerator, float denominator) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(numerator, denominator);
#else
  return numerator / denominator;
#endif
}
__device__ __forceinline__ double quotient_of(double numerator, double denominator) {
  return numerator / denominator;
}

// Division as PyTorch's mean does it: correctly rounded for floats, rounded down for integers.
template <class T>
__device__ __forceinline__ T divide(T sum, uint32 count) {
  if constexpr (is_half<T>) {
    return narrow<T>(quotient_of(widen(sum), static_cast<float>(count)));
  } else if constexpr (is_float<T>) {
    return quotient_of(sum, static_cast<T>(count));
  } else if constexpr (same<T, Boolean>) {
    return sum;  // whether any is true, as on CPUs; PyTorch has no mean of truth values
  } else {
    const int64 divisor = count;
    if constexpr (static_cast<T>(-1) > static_cast<T>(0)) {
      return static_cast<T>(sum / static_cast<uint64>(divisor));
    } else {
      const int64 wide = sum;
      const int64 quotient = wide / divisor;
      return static_cast<T>(wide < 0 && quotient * divisor != wide ? quotient - 1 : quotient);
    }
  }
}

template <class P>
__device__ __forceinline__ void divide_by_counts(typename P::Data* out, const uint32* counts,
                                                 const Sizes<P>& sizes) {
  const int64 width = sizes.width();
  const int64 total = static_cast<int64>(sizes.destinations()) * width;
  for (int64 at = first_in_grid(); at < total; at += threads_in_grid()) {
    const uint32 count = counts[at / width];
    if (count) out[at] = divide(out[at], count + (P::include_self ? 1u : 0u));
  }
}

}  // namespace tvm_scatter
#endif
