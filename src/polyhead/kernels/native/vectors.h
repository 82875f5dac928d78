// Sixteen floats at a time: loads, stores, exp, log and the bit words that hide entries.
//
// Written with GCC/Clang vector extensions, so that the same source is AVX-512 where the compiler may use it and pairs
// of AVX2 registers elsewhere; intrinsics stand only where they pay, each beside its plain form.
// NaN is never lost: comparisons are ordered so that a NaN operand survives clamping.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace polyhead {

#define INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef float UnalignedFloats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t UnalignedInts __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t Shorts __attribute__((vector_size(32)));
typedef uint16_t UnalignedShorts __attribute__((vector_size(32), aligned(2), may_alias));

using bfloat16 = uint16_t;  // its bits: the upper half of a float's

INLINE Floats all(float x) { return Floats{} + x; }
INLINE Floats load(const float* p) { return *(const UnalignedFloats*)p; }
INLINE Ints load(const int32_t* p) { return *(const UnalignedInts*)p; }
INLINE void store(float* p, Floats x) { *(UnalignedFloats*)p = x; }

// --- bfloat16, rounded to nearest even -------------------------------------------------------------------------------

INLINE Shorts to_bfloat16(Floats x) {
#ifdef __AVX512BF16__
  return (Shorts)_mm512_cvtneps_pbh((__m512)x);
#else
  typedef uint32_t Words __attribute__((vector_size(64)));
  Words bits = (Words)x;
  Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Words quiet_nan = (bits >> 16) | 0x40;
  return __builtin_convertvector(x == x ? rounded : quiet_nan, Shorts);
#endif
}
INLINE void store(bfloat16* p, Floats x) { *(UnalignedShorts*)p = to_bfloat16(x); }
INLINE Floats load(const bfloat16* p) { return (Floats)(__builtin_convertvector(*(const UnalignedShorts*)p, Ints) << 16); }

INLINE float to_float(float x) { return x; }
INLINE float to_float(bfloat16 x) {
  uint32_t bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
INLINE void set(float& to, float x) { to = x; }
INLINE void set(bfloat16& to, float x) { to = to_bfloat16(all(x))[0]; }

// to[0, n) = scale * from[0, n)
template <class T>
INLINE void store_scaled(T* to, const float* from, int64_t n, float scale) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i) * scale);
  for (; i < n; i++) set(to[i], from[i] * scale);
}

// --- across the lanes ------------------------------------------------------------------------------------------------

INLINE float sum(Floats x) {
  float total = 0;
  for (int i = 0; i < kLanes; i++) total += x[i];
  return total;
}
INLINE Floats larger(Floats x, Floats y) { return y > x ? y : x; }
INLINE Floats smaller(Floats x, Floats y) { return y < x ? y : x; }
INLINE float largest(Floats x) {
  float most = x[0];
  for (int i = 1; i < kLanes; i++) most = x[i] > most ? x[i] : most;
  return most;
}

// --- bit words: bit i says whether lane i is visible -----------------------------------------------------------------

INLINE uint16_t low_bits(int64_t n) { return n <= 0 ? 0 : n >= kLanes ? 0xffff : uint16_t((1u << n) - 1); }

// x where the bit is set, `otherwise` elsewhere, whatever x is there
INLINE Floats keep(uint16_t bits, Floats x, Floats otherwise = Floats{}) {
#ifdef __AVX512F__
  return (Floats)_mm512_mask_mov_ps((__m512)otherwise, bits, (__m512)x);
#else
  const Ints bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  return ((Ints{} + bits) & bit) != 0 ? x : otherwise;
#endif
}

INLINE uint16_t equal_bits(Ints x, int32_t y) {
#ifdef __AVX512F__
  return _mm512_cmpeq_epi32_mask((__m512i)x, _mm512_set1_epi32(y));
#else
  uint16_t bits = 0;
  for (int i = 0; i < kLanes; i++) bits |= uint16_t(x[i] == y) << i;
  return bits;
#endif
}

// --- elementary functions --------------------------------------------------------------------------------------------

constexpr float kLog2E = 1.4426950408889634f;

// 2^(x * c), c > 0 a constant: 0 below 2^-126 and 2^126 above, relative error about 1e-7
INLINE Floats exp2_scaled(Floats x, float c) {
  const Floats round = all(12582912.f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  Floats lowest = all(-126.f / c), highest = all(126.f / c);
  Floats clamped = x < lowest ? lowest : x;
  clamped = clamped > highest ? highest : clamped;
  Floats shifted = clamped * c + round;
  Floats fraction = clamped * c - (shifted - round);  // one fused operation: exact but for the rounding of c
  Floats p = all(1.535336188319500e-4f);
  p = p * fraction + 1.339887440266574e-3f;
  p = p * fraction + 9.618437357674640e-3f;
  p = p * fraction + 5.550332471162809e-2f;
  p = p * fraction + 2.402264791363012e-1f;
  p = p * fraction + 6.931472028550421e-1f;
  p = p * fraction + 1.0f;
  Floats power = (Floats)(((Ints)shifted << 23) + (Ints)p);
  return x < lowest ? Floats{} : power;
}
INLINE Floats exp(Floats x) { return exp2_scaled(x, kLog2E); }

INLINE Floats reciprocal(Floats x) {
#ifdef __AVX512F__
  Floats r = (Floats)_mm512_rcp14_ps((__m512)x);
  return r * (2.f - x * r);  // one Newton step: about 1e-7
#else
  return 1.f / x;
#endif
}

// log x for x >= 1 (polynomial of the Cephes library)
INLINE Floats log_above_one(Floats x) {
  Ints bits = (Ints)x;
  Ints exponent = (bits - 0x3f3504f3) >> 23;  // of a mantissa in [sqrt(1/2), sqrt(2))
  Floats f = (Floats)(bits - (exponent << 23)) - 1.f;
  Floats y = all(7.0376836292e-2f);
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  Floats square = f * f;
  Floats whole = __builtin_convertvector(exponent, Floats);
  Floats log = f + (y * f * square - 0.5f * square) + whole * 0.6931471805599453f;
  return x < INFINITY ? log : x;  // inf and NaN stay
}

}  // namespace polyhead
