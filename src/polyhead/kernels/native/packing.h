// Memory laid out as the matrix multiply wants it: transposed, in pairs, padded with zeros.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>
#include <type_traits>
#include "vectors.h"

namespace polyhead {

INLINE int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Uninitialised, cache-line aligned memory for `n` elements.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t n = 0) {
    if (n > 0 && !(data_ = (T*)std::aligned_alloc(64, round_up(n * sizeof(T), 64)))) throw std::bad_alloc();
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

// to[c][r] = from[r][c] for a 16 x 16 block of 32-bit words
INLINE void transpose_block(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
#ifdef __AVX512F__
  __m512i r[16], t[16];
  for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(from + i * from_stride);
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
  for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + i * to_stride, r[i]);
#else
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) to[j * to_stride + i] = from[i * from_stride + j];
#endif
}

// to[c][r] = from[r][c] of 32-bit words, r < rows, c < columns, and 0 for rows <= r < padded_rows
inline void transpose(const uint32_t* from, int64_t from_stride, int rows, int columns, uint32_t* to,
                      int64_t to_stride, int padded_rows) {
  int r = 0;
  for (; r + 16 <= rows; r += 16) {
    int c = 0;
    for (; c + 16 <= columns; c += 16)
      transpose_block(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    for (; c < columns; c++)
      for (int i = r; i < r + 16; i++) to[c * to_stride + i] = from[i * from_stride + c];
  }
  for (; r < rows; r++)
    for (int c = 0; c < columns; c++) to[c * to_stride + r] = from[r * from_stride + c];
  if (rows < padded_rows)
    for (int c = 0; c < columns; c++) std::memset(to + c * to_stride + rows, 0, 4 * (padded_rows - rows));
}

// The right operand of a product, x^T, from x (rows x columns): plain (columns x padded_rows) for float; for bfloat16 in
// pairs of consecutive columns, (columns / 2) x padded_rows x 2, as the instruction takes it. bfloat16 columns are even.
INLINE void pack_transposed(const float* x, int64_t stride, int rows, int columns, float* to, int padded_rows) {
  transpose((const uint32_t*)x, stride, rows, columns, (uint32_t*)to, padded_rows, padded_rows);
}
inline void pack_transposed(const bfloat16* x, int64_t stride, int rows, int columns, bfloat16* to, int padded_rows) {
  if (stride % 2 == 0 && (uintptr_t)x % 4 == 0) {  // a pair is one 32-bit word
    transpose((const uint32_t*)x, stride / 2, rows, columns / 2, (uint32_t*)to, padded_rows, padded_rows);
    return;
  }
  for (int c = 0; c < columns; c += 2)
    for (int r = 0; r < padded_rows; r++)
      for (int i = 0; i < 2; i++) to[c * padded_rows + 2 * r + i] = r < rows ? x[r * stride + c + i] : 0;
}

// The right operand x itself for bfloat16: pairs of consecutive rows, (padded_rows / 2) x columns x 2.
inline void pack_pairs(const bfloat16* x, int64_t stride, int rows, int columns, bfloat16* to, int padded_rows) {
  for (int r = 0; r < padded_rows; r += 2) {
    const bfloat16 *first = x + r * stride, *second = first + stride;
    bfloat16* out = to + (int64_t)r * columns;
    if (r + 1 < rows) {
      int c = 0;
      for (; c + kLanes <= columns; c += kLanes) {
        const Ints low = __builtin_convertvector(*(const UnalignedShorts*)(first + c), Ints);
        const Ints high = __builtin_convertvector(*(const UnalignedShorts*)(second + c), Ints);
        *(UnalignedInts*)(out + 2 * c) = low | high << 16;
      }
      for (; c < columns; c++) out[2 * c] = first[c], out[2 * c + 1] = second[c];
    } else if (r < rows) {
      for (int c = 0; c < columns; c++) out[2 * c] = first[c], out[2 * c + 1] = 0;
    } else {
      std::memset(out, 0, 2 * sizeof(bfloat16) * columns);
    }
  }
}

// The left operand x^T (columns x padded_rows), plain for both types; `scratch` holds padded_rows * columns.
INLINE void pack_left_transposed(const float* x, int64_t stride, int rows, int columns, float* to, int padded_rows,
                                 float*) {
  pack_transposed(x, stride, rows, columns, to, padded_rows);
}
inline void pack_left_transposed(const bfloat16* x, int64_t stride, int rows, int columns, bfloat16* to,
                                 int padded_rows, bfloat16* scratch) {
  pack_pairs(x, stride, rows, columns, scratch, padded_rows);
  transpose((const uint32_t*)scratch, columns, padded_rows / 2, columns, (uint32_t*)to, padded_rows / 2, padded_rows / 2);
}

// x (rows x columns) with zero rows below it
template <class T>
inline void copy_padded(const T* x, int64_t stride, int rows, int columns, T* to, int padded_rows) {
  for (int r = 0; r < rows; r++) std::memcpy(to + (int64_t)r * columns, x + r * stride, sizeof(T) * columns);
  std::memset(to + (int64_t)rows * columns, 0, sizeof(T) * columns * (padded_rows - rows));
}

// A block of rows as an operand: where it starts and how far apart its rows are.
template <class T>
struct Block {
  const T* data;
  int64_t stride;
};

}  // namespace polyhead
