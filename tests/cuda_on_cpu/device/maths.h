// Arithmetic that CUDA declares and the host's <cmath> does not.
#pragma once
#include <cmath>
#include <cstdint>

#define CPU_CUDA_MIN_MAX(A, B, R)                                         \
  inline R min(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); } \
  inline R max(A a, B b) { return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); }
CPU_CUDA_MIN_MAX(int, int, int)
CPU_CUDA_MIN_MAX(unsigned, unsigned, unsigned)
CPU_CUDA_MIN_MAX(int, unsigned, unsigned)
CPU_CUDA_MIN_MAX(unsigned, int, unsigned)
CPU_CUDA_MIN_MAX(long, long, long)
CPU_CUDA_MIN_MAX(unsigned long, unsigned long, unsigned long)
CPU_CUDA_MIN_MAX(long, unsigned long, unsigned long)
CPU_CUDA_MIN_MAX(unsigned long, long, unsigned long)
CPU_CUDA_MIN_MAX(long long, long long, long long)
CPU_CUDA_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CPU_CUDA_MIN_MAX(long long, unsigned long long, unsigned long long)
CPU_CUDA_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef CPU_CUDA_MIN_MAX
// A NaN loses against a number, as in fmin and fmax.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
using std::abs;

// The fast forms promise less, so the exact ones will do.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline long long __float2ll_rn(float x) { return llrintf(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __double2int_rn(double x) { return static_cast<int>(rint(x)); }
inline double __int2double_rn(int x) { return x; }

inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }

// The half headers leave these to the device compiler.
#define CPU_CUDA_HALF(T, to_float, from_float)                                             \
  inline T __hfma(T a, T b, T c) { return from_float(fmaf(to_float(a), to_float(b), to_float(c))); } \
  inline T hexp(T a) { return from_float(expf(to_float(a))); }                             \
  inline T hexp2(T a) { return from_float(exp2f(to_float(a))); }                           \
  inline T hlog(T a) { return from_float(logf(to_float(a))); }                             \
  inline T hlog2(T a) { return from_float(log2f(to_float(a))); }                           \
  inline T hlog10(T a) { return from_float(log10f(to_float(a))); }                         \
  inline T hsqrt(T a) { return from_float(sqrtf(to_float(a))); }                           \
  inline T hrsqrt(T a) { return from_float(1.0f / sqrtf(to_float(a))); }                   \
  inline T hrcp(T a) { return from_float(1.0f / to_float(a)); }                            \
  inline T hsin(T a) { return from_float(sinf(to_float(a))); }                             \
  inline T hcos(T a) { return from_float(cosf(to_float(a))); }                             \
  inline T hexp10(T a) { return from_float(powf(10.0f, to_float(a))); }                    \
  inline T hfloor(T a) { return from_float(floorf(to_float(a))); }                         \
  inline T hceil(T a) { return from_float(ceilf(to_float(a))); }                           \
  inline T htrunc(T a) { return from_float(truncf(to_float(a))); }                         \
  inline T hrint(T a) { return from_float(rintf(to_float(a))); }
CPU_CUDA_HALF(__half, __half2float, __float2half)
CPU_CUDA_HALF(__nv_bfloat16, __bfloat162float, __float2bfloat16)
#undef CPU_CUDA_HALF
// TVM defines these itself: those of bfloat16 always, and those of half where __CUDA_ARCH__ is
// defined, but htanh only for compilers that lack it.
#define CPU_CUDA_OF_TVM(name, function) \
  inline __half name(__half a) { return __float2half(function(__half2float(a))); }
CPU_CUDA_OF_TVM(htanh, tanhf)
CPU_CUDA_OF_TVM(htan, tanf)
CPU_CUDA_OF_TVM(hatan, atanf)
CPU_CUDA_OF_TVM(herf, erff)
#undef CPU_CUDA_OF_TVM
inline __half hpow(__half a, __half b) { return __float2half(powf(__half2float(a), __half2float(b))); }
