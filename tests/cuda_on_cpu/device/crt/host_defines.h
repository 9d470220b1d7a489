// Stands in for the file of this name in CUDA's compiler package, which the header-only wheel
// lacks. It says what CUDA's own headers take from it, in terms that g++ knows.
#pragma once

#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __managed__
// The rewriter turns nearly every shared declaration into one that the simulator allocates; what
// it leaves (several declarators in one declaration) is still right, only without fences.
#define __shared__ static

#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __no_return__ __attribute__((noreturn))

#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __maxnreg__(...)

#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __specialization_static static
