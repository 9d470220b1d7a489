// CUDA C++ for a host compiler: everything a kernel that TVM generated may use. Force-included
// before the generated source, as a precompiled header.
//
// __CUDA_ARCH__ and __CUDACC__ stay undefined, so device routines take their portable path
// instead of inline PTX.
#pragma once

#include <cassert>
// <cmath> without Bessel functions and the like: they take longer than all else that is included.
#ifdef _GLIBCXX_USE_STD_SPEC_FUNCS
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#endif
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "abi.h"

// Constant from a thread's point of view, whatever runs between two of its steps.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// In CUDA these are there without any include or namespace.
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#include "atomics.h"
#include "bits.h"
#include "loads.h"
#include "maths.h"
#include "shared_variables.h"
#include "synchronize.h"
#include "warp.h"
#include "kernel_table.h"
