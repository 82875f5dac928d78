// Matrix products by oneDNN's block kernels, through the symbol PyTorch exports for its own attention. Only this file
// sees PyTorch's headers: the symbol is internal, so native.py tests it when it loads this library.
#include "gemm.h"

#include <ATen/native/CPUBlas.h>

namespace polyhead {

namespace blas = at::native::cpublas;

namespace {
const at::BFloat16* bf(const bfloat16* x) { return reinterpret_cast<const at::BFloat16*>(x); }
thread_local bool holds_matrix_unit = false;
}  // namespace

void multiply_add(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                  float* c, int64_t c_stride) {
  blas::brgemm(m, n, k, a_stride, b_stride, c_stride, /*add_C=*/true, a, b, c, /*is_vnni=*/false);
}
void multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* c, int64_t c_stride) {
  blas::brgemm(m, n, k, a_stride, b_stride, c_stride, /*add_C=*/false, a, b, c, /*is_vnni=*/false);
}
void multiply_add(int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t a_stride, const bfloat16* b,
                  int64_t b_stride, float* c, int64_t c_stride) {
  holds_matrix_unit = true;
  blas::brgemm(m, n, k, a_stride, b_stride, c_stride, /*add_C=*/true, bf(a), bf(b), c, /*is_vnni=*/true);
}
void multiply(int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t a_stride, const bfloat16* b,
              int64_t b_stride, float* c, int64_t c_stride) {
  holds_matrix_unit = true;
  blas::brgemm(m, n, k, a_stride, b_stride, c_stride, /*add_C=*/false, bf(a), bf(b), c, /*is_vnni=*/true);
}
void release_matrix_unit() {
  if (holds_matrix_unit) blas::brgemm_release(/*is_vnni=*/true);
  holds_matrix_unit = false;
}

}  // namespace polyhead
