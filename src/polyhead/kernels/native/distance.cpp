// The sum of all distances |x_i - y_j| between two sets of points, with its gradient, in one pass and O(N) memory.
//
// Distances are computed in the points' own precision, a vector of j at a time, and added up in double precision, so the
// sum of 10^8 float distances is as exact as each of them (about 1e-7) and its error does not grow. Coincident points have
// distance 0 and gradient 0. With y = x only pairs i < j are visited.
#include <stdexcept>
#include <vector>
#include "gemm.h"
#include "packing.h"

namespace polyhead {
namespace {

constexpr int kRows = 64;      // points of x that one task takes
constexpr int kColumns = 512;  // distances added up in the points' precision before double takes over

template <class T>
struct Vector {
  static constexpr int size = 64 / sizeof(T);
  typedef T Type __attribute__((vector_size(64)));
  typedef T Unaligned __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
};

// 1 / sqrt(x), and 0 at x = 0
INLINE Vector<float>::Type inverse_root(Vector<float>::Type x) {
#ifdef __AVX512F__
  auto r = (Vector<float>::Type)_mm512_rsqrt14_ps((__m512)x);
  r = r * (1.5f - 0.5f * x * r * r);
#else
  Vector<float>::Type r;
  for (int i = 0; i < 16; i++) r[i] = 1 / std::sqrt(x[i]);
#endif
  return x == 0 ? Vector<float>::Type{} : r;
}
INLINE Vector<double>::Type inverse_root(Vector<double>::Type x) {
#ifdef __AVX512F__
  auto r = (Vector<double>::Type)_mm512_rsqrt14_pd((__m512d)x);
  for (int step = 0; step < 2; step++) r = r * (1.5 - 0.5 * x * r * r);
#else
  Vector<double>::Type r;
  for (int i = 0; i < 8; i++) r[i] = 1 / std::sqrt(x[i]);
#endif
  return x == 0 ? Vector<double>::Type{} : r;
}

template <class V>
INLINE double total(V x) {
  double t = 0;
  for (size_t i = 0; i < sizeof(V) / sizeof(x[0]); i++) t += x[i];
  return t;
}

template <class T, int D, bool gradient>
class Distances {
 public:
  Distances(const T* x, const T* y, int64_t n, int64_t m, double* dx, double* dy, int threads)
      : x_(x), same_(x == y), n_(n), m_(m), stride_(round_up(m, kColumns)), dx_(dx), dy_(dy), threads_(threads),
        y_(stride_ * D) {
    for (int c = 0; c < D; c++)
      for (int64_t j = 0; j < stride_; j++) y_.get()[c * stride_ + j] = j < m ? y[j * D + c] : 0;
  }

  double run() {
    const int64_t blocks = (n_ + kRows - 1) / kRows;
    std::vector<double> sums(blocks);
    // dealt out in turn, not as they come, so that every share of dy is added up in the same order every time
    std::vector<std::vector<double>> shares(threads_);
    run_tasks(threads_, threads_, [&](int64_t share, int) {
      if (gradient) shares[share].assign(stride_ * D, 0.0);
      Buffer<T> dy(gradient ? kColumns * D : 0);
      for (int64_t block = share; block < blocks; block += threads_)
        sums[block] = rows(block * kRows, std::min(n_, (block + 1) * kRows), dy.get(), shares[share]);
    });
    if (gradient)
      for (const auto& share : shares)
        for (int64_t j = 0; j < m_; j++)
          for (int c = 0; c < D; c++) dy_[j * D + c] += share[c * stride_ + j];
    double sum = 0;
    for (double part : sums) sum += part;
    return sum;
  }

 private:
  using V = typename Vector<T>::Type;
  using U = typename Vector<T>::Unaligned;
  static constexpr int W = Vector<T>::size;

  // Rows [first, last) against every column (every later one when y is x); `dy` is scratch, its sum goes to `share`.
  double rows(int64_t first, int64_t last, T* dy, std::vector<double>& share) const {
    double sum = 0;
    for (int64_t j = same_ ? first / kColumns * kColumns : 0; j < m_; j += kColumns) {
      const int columns = int(std::min<int64_t>(kColumns, m_ - j));
      if (gradient)
        for (int c = 0; c < D; c++) std::fill_n(dy + c * kColumns, kColumns, T(0));
      for (int64_t i = first; i < last; i++) {
        const int from = same_ ? int(std::clamp<int64_t>(i + 1 - j, 0, columns)) : 0;
        if (from < columns) sum += row(i, j, from, columns, dy);
      }
      if (gradient)
        for (int c = 0; c < D; c++)
          for (int k = 0; k < columns; k++) share[c * stride_ + j + k] += dy[c * kColumns + k];
    }
    return sum;
  }

  // Point i of x against points j + from, ..., j + columns of y.
  INLINE double row(int64_t i, int64_t j, int from, int columns, T* dy) const {
    V sum = {}, toward[D] = {};
    const int start = from / W * W;
    for (int k = start; k < columns; k += W) {
      V difference[D], square = {};
      for (int c = 0; c < D; c++) {
        difference[c] = x_[i * D + c] - (V)*(const U*)(y_.get() + c * stride_ + j + k);
        square += difference[c] * difference[c];
      }
      if (k < from || k + W > columns)
        for (int l = 0; l < W; l++)
          if (k + l < from || k + l >= columns) square[l] = 0;
      const V inverse = inverse_root(square);
      sum += square * inverse;
      if constexpr (gradient) {
        for (int c = 0; c < D; c++) {
          const V unit = difference[c] * inverse;
          toward[c] += unit;
          U* to = (U*)(dy + c * kColumns + k);
          *to = *to - unit;
        }
      }
    }
    if constexpr (gradient)
      for (int c = 0; c < D; c++) dx_[i * D + c] += total(toward[c]);
    return total(sum);
  }

  const T* x_;
  const bool same_;
  const int64_t n_, m_, stride_;
  double *dx_, *dy_;
  const int threads_;
  Buffer<T> y_;  // D x stride_: one row per coordinate
};

template <class T, int D = 1>
double sum_distances(const T* x, const T* y, int64_t n, int64_t m, int dimension, double* dx, double* dy, int threads) {
  if (dimension != D) {
    if constexpr (D < 8) return sum_distances<T, D + 1>(x, y, n, m, dimension, dx, dy, threads);
    throw std::invalid_argument("points of 1 to 8 dimensions only");
  }
  if (dx) return Distances<T, D, true>(x, y, n, m, dx, dy, threads).run();
  return Distances<T, D, false>(x, y, n, m, dx, dy, threads).run();
}

}  // namespace

// The sum over all pairs; over pairs i < j when y == x. Adds its gradients, (n, D) and (m, D), to dx and dy when given.
double pairwise_distance_sum(const void* x, const void* y, int64_t n, int64_t m, int dimension, bool is_double,
                             double* dx, double* dy, int threads) {
  if (is_double) return sum_distances((const double*)x, (const double*)y, n, m, dimension, dx, dy, threads);
  return sum_distances((const float*)x, (const float*)y, n, m, dimension, dx, dy, threads);
}

}  // namespace polyhead
