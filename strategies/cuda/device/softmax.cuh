// Sums of rows that are weighted by the softmax of their logits, in one pass: the greatest logit so
// far, and sums relative to it. M. Milakov and N. Gimelshein, "Online normalizer calculation for
// softmax", arXiv 1805.02867, 2018.
#ifndef TVM_SCATTER_SOFTMAX
#define TVM_SCATTER_SOFTMAX
#include "common.cuh"

namespace tvm_scatter {

// An update: neighbours in a row that have one logit.
template <class Data, int count>
struct SoftmaxUpdate {
  Accumulate<Data> logit;
  Vector<Data, count> value;
};

// Of some updates: their greatest logit, and the sums of exp(logit - greatest), alone and times the
// update.
template <class Wide, int count>
struct SoftmaxSum {
  Wide greatest, total;
  Wide at[count];
};

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// The same of a number that is not positive, as exactly as weights of 16-bit floats need it: the error
// is that of x / ln(2), at most 2^-16 of the result while that is a normal number. Others are zero.
__device__ __forceinline__ float coarse_exponential(float x) {
  const float binary = x * 1.44269504f;
#if defined(__CUDA_ARCH__) && !defined(TVM_SCATTER_NO_PTX)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(binary));
  return result;
#else
  return exp2f(binary);
#endif
}

template <class Wide>
__device__ __forceinline__ Wide infinity() {
  if constexpr (sizeof(Wide) == 8) {
    return bit_cast<Wide>(0x7ff0000000000000ull);
  } else {
    return bit_cast<Wide>(0x7f800000u);
  }
}

template <class Wide, int count>
__device__ __forceinline__ SoftmaxSum<Wide, count> softmax_of_none() {
  SoftmaxSum<Wide, count> sum;
  sum.greatest = -infinity<Wide>();
  sum.total = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) sum.at[i] = 0;
  return sum;
}

// Add what has some greatest logit and a sum of weights relative to it. One of both sums is then
// relative to a lesser logit than the greatest, and has less weight.
template <class Wide, int count, class Value>
__device__ __forceinline__ void add_softmax(SoftmaxSum<Wide, count>& sum, Wide greatest, Wide total,
                                            Value value) {
  // Equal infinities differ by nothing. A NaN is no greatest, but makes every weight one.
  const Wide more = greatest == sum.greatest ? Wide(0) : greatest - sum.greatest;
  const bool raises = more > 0;
  const Wide less = exponential(raises ? -more : more);
  const Wide kept = raises ? less : Wide(1), weight = raises ? Wide(1) : less;
  if (raises) sum.greatest = greatest;
  sum.total = sum.total * kept + weight * total;
#pragma unroll
  for (int i = 0; i < count; ++i) sum.at[i] = sum.at[i] * kept + weight * value(i);
}

template <class R, class Wide, int count, class Data>
__device__ __forceinline__ void add_row(SoftmaxSum<Wide, count>& sum,
                                        const SoftmaxUpdate<Data, count>& row) {
  const auto value = widen(row.value);
  add_softmax(sum, row.logit, Wide(1), [&](int i) { return value.at[i]; });
}

template <class R, class Wide, int count>
__device__ __forceinline__ void add_row(SoftmaxSum<Wide, count>& sum,
                                        const SoftmaxSum<Wide, count>& other) {
  add_softmax(sum, other.greatest, other.total, [&](int i) { return other.at[i]; });
}

// What a logit of 16-bit floats is raised to, relative to one that is no less. Equal infinities differ
// by nothing.
__device__ __forceinline__ float coarse_weight(float logit, float greatest) {
  return coarse_exponential(logit == greatest ? 0.0f : logit - greatest);
}

// Add the first `some` of a few updates of 16-bit floats, in order. The greatest logit of all is found
// first, so that what is summed already becomes relative to it once. Wider updates would have to be
// held in more registers than there are. `repeats` says that what is behind them is the last of them.
template <bool repeats, class Data, int count, uint32 most>
__device__ __forceinline__ void add_few(SoftmaxSum<float, count>& sum,
                                        const SoftmaxUpdate<Data, count> (&few)[most],
                                        uint32 some) {
  float greatest = sum.greatest;
#pragma unroll
  for (uint32 u = 0; u < most; ++u)
    if (repeats || u < some) greatest = fmaxf(greatest, few[u].logit);  // a NaN is no greatest
  const float kept = coarse_weight(sum.greatest, greatest);
  sum.greatest = greatest;
  sum.total *= kept;
#pragma unroll
  for (int i = 0; i < count; ++i) sum.at[i] *= kept;
#pragma unroll
  for (uint32 u = 0; u < most; ++u) {
    if (u >= some) continue;
    const float weight = coarse_weight(few[u].logit, greatest);
    const auto value = widen(few[u].value);
    sum.total += weight;
#pragma unroll
    for (int i = 0; i < count; ++i) sum.at[i] += weight * value.at[i];
  }
}

// What is raised by an infinite logit is no number, and so is every share.
template <class Data, class Wide, int count>
__device__ __forceinline__ Vector<Data, count> softmax_result(const SoftmaxSum<Wide, count>& sum) {
  const bool finite = sum.greatest < infinity<Wide>() && sum.greatest > -infinity<Wide>();
  const Wide total = finite ? sum.total : infinity<Wide>() - infinity<Wide>();
  Vector<Data, count> result;
#pragma unroll
  for (int i = 0; i < count; ++i) result.at[i] = narrow<Data>(sum.at[i] / total);
  return result;
}

}  // namespace tvm_scatter
#endif
