// The one matrix multiply everything here is built from, and the threads that run it.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include "vectors.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace polyhead {

// c (m x n) += a (m x k) b (k x n), row strides given; b in pairs of rows for bfloat16 (packing.h)
void multiply_add(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                  float* c, int64_t c_stride);
void multiply_add(int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t a_stride, const bfloat16* b,
                  int64_t b_stride, float* c, int64_t c_stride);
// c = a b
void multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* c, int64_t c_stride);
void multiply(int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t a_stride, const bfloat16* b,
              int64_t b_stride, float* c, int64_t c_stride);
// Give back what a thread holds for bfloat16 products (AMX tiles).
void release_matrix_unit();

// body(task, thread) for every task, in order of the queue, on up to `threads` threads; rethrows the first exception.
template <class Body>
void run_tasks(int threads, int64_t tasks, const Body& body) {
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
#pragma omp parallel num_threads(int(tasks < threads ? (tasks > 0 ? tasks : 1) : threads))
  {
#ifdef _OPENMP
    int thread = omp_get_thread_num();
#else
    int thread = 0;
#endif
    try {
      for (int64_t task; (task = next.fetch_add(1)) < tasks;) body(task, thread);
    } catch (...) {
#pragma omp critical(polyhead_failure)
      failure = std::current_exception();
    }
    release_matrix_unit();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace polyhead
