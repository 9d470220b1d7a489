// The steps around a reduction: the initial copy, the reset of touched places, counting, dividing.
#ifndef TVM_SCATTER_STAGES
#define TVM_SCATTER_STAGES
#include "grid.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

// Bytes that a thread copies or fills. With no more, the accesses of all blocks that are on their way
// lie near each other: with two of a thread a copy of 268 MB took 136 us on an H200, with one 131.
constexpr int kCopyBytes = 16;

// Copy `bytes` bytes.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, int64 bytes) {
  const bool whole = ((reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from)) & 15) == 0;
  const int64 vectors = whole ? bytes / kCopyBytes : 0, at = first_in_grid();
  if (at < vectors) static_cast<uint4*>(to)[at] = static_cast<const uint4*>(from)[at];
  // What these accesses leave over: the tail, or everything where a tensor is not aligned.
  const int64 span = int64(blockDim.x) * kCopyBytes;
  const int64 begin = whole ? vectors * kCopyBytes : blockIdx.x * span;
  const int64 end = whole ? bytes : min(bytes, begin + span);
  if (whole && blockIdx.x > 0) return;
  for (int64 one = begin + threadIdx.x; one < end; one += blockDim.x)
    static_cast<char*>(to)[one] = static_cast<const char*>(from)[one];
}

// Fill the output.
template <class P>
__device__ __forceinline__ void fill_output(typename P::Data* out, int64 size) {
  using Data = typename P::Data;
  constexpr int vector = kCopyBytes / sizeof(Data);
  const int64 at = first_in_grid() * vector;
  if (aligned<Data, vector>(out) && at + vector <= size) {
    store<Data, vector>(out + at, splat<Data, vector>(P::fill()));
  } else {
    for (int64 one = at; one < size && one < at + vector; ++one) out[one] = P::fill();
  }
}

// Compute what follows from what stands in the output, in the same place. In a grid-stride loop,
// because single elements take more threads than vectors.
template <class P, int vector>
__device__ __forceinline__ void finish_output(const typename P::Output& output,
                                              const typename P::Data* own, int64 size) {
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  for (int64 at = first_in_grid() * vector; at + vector <= size; at += threads_in_grid() * vector)
    output.template store<Offset>(at, load<Data, vector>(own + at));
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
