// Loads and stores with a cache hint, which is all that tells them from plain ones. They keep the
// alignment of their type: what faults on a GPU is found here as well.
#pragma once

template <class T>
inline T __ldg(const T* p) { return *p; }
template <class T>
inline T __ldcg(const T* p) { return *p; }
template <class T>
inline T __ldca(const T* p) { return *p; }
template <class T>
inline T __ldcs(const T* p) { return *p; }
template <class T>
inline T __ldlu(const T* p) { return *p; }
// The one that is meant for polling.
template <class T>
inline T __ldcv(const T* p) {
  asm volatile("" ::: "memory");
  return *p;
}
template <class T>
inline void __stwb(T* p, T value) { *p = value; }
template <class T>
inline void __stcg(T* p, T value) { *p = value; }
template <class T>
inline void __stcs(T* p, T value) { *p = value; }
template <class T>
inline void __stwt(T* p, T value) { *p = value; }
