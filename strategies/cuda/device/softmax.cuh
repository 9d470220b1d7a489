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
