// What a scan combines: the type of its values, how elements become such values, and these results.
#ifndef TVM_SCATTER_RUNNING
#define TVM_SCATTER_RUNNING
#include "reduction.cuh"

namespace tvm_scatter {

// Elements as they are summed up: of the type of the results, which 16-bit floats are too narrow for.
template <class Out, class In>
__device__ __forceinline__ Accumulate<Out> converted(In element) {
  if constexpr (same<In, Out>) {
    return widen(element);
  } else if constexpr (same<In, Boolean>) {
    return converted<Out>(static_cast<unsigned char>(element.value != 0));
  } else if constexpr (same<Out, Boolean>) {
    return Boolean{static_cast<unsigned char>(widen(element) != 0)};
  } else {
    return widen(narrow<Out>(static_cast<Accumulate<Out>>(widen(element))));
  }
}

template <class Reduction, class From, class To>
struct Running {
  using In = From;
  using Out = To;
  using Value = Accumulate<Out>;

  static __device__ __forceinline__ Value none() {
    return converted<Out>(static_cast<unsigned char>(same<Reduction, Mul>));
  }
  static __device__ __forceinline__ Value value(In element) { return converted<Out>(element); }
  static __device__ __forceinline__ Value combine(Value earlier, Value later) {
    return Reduction::combine(earlier, later);
  }
  static __device__ __forceinline__ Out result(Value value) { return narrow<Out>(value); }
};

}  // namespace tvm_scatter
#endif
