// What a weight is: each attention function's formula, once. `src/polyhead/functions.py` says the same in Python.
//
// A function gives its weight g and slope g' at a score, and their logarithmic forms log g and (log g)', which serve
// rows whose weights leave the floating range. To add one: a struct here, its line in WITH_FUNCTION, its number in
// native.py.
#pragma once
#include "vectors.h"

namespace polyhead {

struct Weight {
  Floats value, slope;
};

INLINE Floats positive_part(Floats s) { return s < 0.f ? Floats{} : s; }
INLINE Floats magnitude(Floats s) { return s < 0.f ? -s : s; }

struct Softmax {  // e^s, always taken in logarithms, so only those are here
  static constexpr bool normalised = true, takes_t = false, always_in_logs = true;
  static INLINE Floats weight(Floats s) { return exp(s); }
  static INLINE Weight weigh(Floats s) { return {exp(s), exp(s)}; }
  static INLINE Floats log_weight(Floats s) { return s; }
  static INLINE Floats log_slope(Floats) { return all(1.f); }
};

struct Sigmoid {  // 1 / (1 + e^-s), of s - log t
  static constexpr bool normalised = false, takes_t = true, always_in_logs = false;
  static INLINE Floats weight(Floats s) { return reciprocal(1.f + exp(-s)); }
  static INLINE Weight weigh(Floats s) {
    Floats g = weight(s);
    return {g, g * (1.f - g)};
  }
  static INLINE Floats log_weight(Floats s) { return s - positive_part(s) - log_above_one(1.f + exp(-magnitude(s))); }
  static INLINE Floats log_slope(Floats s) { return weight(-s); }
};

struct SquaredElu {  // (s + 1)^2 above zero, e^(2 s) below
  static constexpr bool normalised = true, takes_t = false, always_in_logs = false;
  static INLINE Floats weight(Floats s) { return s > 0.f ? (s + 1.f) * (s + 1.f) : exp2_scaled(s, 2 * kLog2E); }
  static INLINE Weight weigh(Floats s) {
    Floats g = weight(s);
    return {g, 2.f * (s > 0.f ? s + 1.f : g)};
  }
  static INLINE Floats log_weight(Floats s) { return 2.f * (s > 0.f ? log_above_one(1.f + positive_part(s)) : s); }
  static INLINE Floats log_slope(Floats s) { return 2.f * reciprocal(1.f + positive_part(s)); }
};

struct LinearElu {  // s + 1 above zero, e^s below
  static constexpr bool normalised = true, takes_t = false, always_in_logs = false;
  static INLINE Floats weight(Floats s) { return s > 0.f ? s + 1.f : exp(s); }
  static INLINE Weight weigh(Floats s) {
    Floats g = weight(s);
    return {g, g > 1.f ? all(1.f) : g};
  }
  static INLINE Floats log_weight(Floats s) { return s > 0.f ? log_above_one(1.f + positive_part(s)) : s; }
  static INLINE Floats log_slope(Floats s) { return reciprocal(1.f + positive_part(s)); }
};

struct LogElu {  // log(1 + s) + 1 above zero, 1 / (1 - s) below
  static constexpr bool normalised = true, takes_t = false, always_in_logs = false;
  static INLINE Floats weight(Floats s) {
    Floats outer = 1.f + magnitude(s);
    return s > 0.f ? log_above_one(outer) + 1.f : reciprocal(outer);
  }
  static INLINE Weight weigh(Floats s) {
    Floats outer = 1.f + magnitude(s), inverse = reciprocal(outer);
    return {s > 0.f ? log_above_one(outer) + 1.f : inverse, s > 0.f ? inverse : inverse * inverse};
  }
  static INLINE Floats log_weight(Floats s) {
    Floats log_outer = log_above_one(1.f + magnitude(s));
    return s > 0.f ? log_above_one(1.f + positive_part(log_outer)) : -log_outer;
  }
  static INLINE Floats log_slope(Floats s) {
    Floats outer = 1.f + magnitude(s), inverse = reciprocal(outer);
    return s > 0.f ? inverse * reciprocal(1.f + log_above_one(outer)) : inverse;
  }
};

// g, g' and, when wanted, log g at a score, either plainly or as e^(log g + anchor) with its slope
template <class F, bool in_logs>
INLINE Weight weigh(Floats s, Floats anchor, Floats& log_weight, bool want_log) {
  if constexpr (in_logs) {
    // a share of its row's mass: above 1 only by rounding, which at scores of 1e10 would be e^500
    log_weight = smaller(F::log_weight(s) + anchor, Floats{});
    Floats g = exp(log_weight);
    return {g, g * F::log_slope(s)};
  } else {
    if (want_log) log_weight = F::log_weight(s);
    return F::weigh(s);
  }
}

// `expression` with F the function of that number (native.py's FUNCTIONS), or the last for an unknown one
#define WITH_FUNCTION(number, expression)                        \
  [&] {                                                          \
    switch (number) {                                            \
      case 0: { using F = ::polyhead::Softmax; return expression; }    \
      case 1: { using F = ::polyhead::Sigmoid; return expression; }    \
      case 2: { using F = ::polyhead::SquaredElu; return expression; } \
      case 3: { using F = ::polyhead::LinearElu; return expression; }  \
      default: { using F = ::polyhead::LogElu; return expression; }    \
    }                                                            \
  }()

}  // namespace polyhead
