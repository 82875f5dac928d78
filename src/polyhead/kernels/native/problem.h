// One attention call as native.py hands it over (the C structure `Problem` mirrors ctypes `_Problem` field by field).
//
// Shape letters as in call.py: batch B, heads H, kv_heads G, queries N, keys M, head_dim D, value_dim E.
#pragma once
#include <cstdint>
#include "packing.h"

namespace polyhead {

struct Strides {  // in elements; the last dimension is contiguous
  int64_t batch, head, row;
};

struct Problem {
  const void *q, *k, *v;
  void* out;
  float *log_mass, *entropy, *max_weight;  // (B,H,N) contiguous; the last two null when not wanted
  const void* d_out;                       // backward only, from here
  const float *d_log_mass, *d_entropy;     // (B,H,N) contiguous, null where nothing flows
  void *dq, *dk, *dv;
  Strides q_strides, k_strides, v_strides, out_strides, d_out_strides, dq_strides, dk_strides, dv_strides;
  int64_t batches, heads, kv_heads, queries, keys, head_dim, value_dim;
  const int32_t* functions;  // (H)
  const float* log_t;        // subtracted from the scores, broadcast by zero strides; null for 0
  Strides log_t_strides;
  const int64_t* key_lengths;  // (B) or null
  const int32_t* documents;    // (B, documents_stride), padded to a multiple of 64 columns and more; or null
  int64_t documents_stride;
  const uint8_t* mask;  // 1 = may see; strides of every dimension, 0 where it stands for all; or null
  Strides mask_strides;
  int64_t mask_column_stride;
  float scale;
  int32_t is_causal, threads;

  // query i sees keys up to i + offset() when causal
  int64_t offset() const { return keys - queries; }
  int64_t repeats() const { return heads / kv_heads; }
  int64_t key_limit(int64_t batch) const { return key_lengths ? key_lengths[batch] : keys; }
};

template <class T>
INLINE T* row(T* data, const Strides& s, int64_t batch, int64_t head, int64_t i) {
  return data + batch * s.batch + head * s.head + i * s.row;
}

// A row's log mass outside of these is redone in logarithms (two thirds of the float's range: call it fragile).
constexpr float kLogSmallest = -58.2f, kLogLargest = 59.1f;
INLINE bool is_fragile(float log_mass) { return !(log_mass >= kLogSmallest && log_mass <= kLogLargest); }

}  // namespace polyhead
