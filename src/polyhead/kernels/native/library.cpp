// What native.py calls: a plain C interface, 0 for success; the message of the last failure of this thread is kept.
#include <exception>
#include <string>
#include "problem.h"

namespace polyhead {

void forward(const Problem& problem, bool is_bfloat16);
void backward(const Problem& problem, bool is_bfloat16);
double pairwise_distance_sum(const void* x, const void* y, int64_t n, int64_t m, int dimension, bool is_double,
                             double* dx, double* dy, int threads);

namespace {
thread_local std::string failure;

template <class Body>
int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "an exception of unknown type";
  }
  return 1;
}
}  // namespace

extern "C" {
const char* polyhead_failure() { return failure.c_str(); }
int64_t polyhead_problem_size() { return sizeof(Problem); }
int polyhead_forward(const Problem* problem, int is_bfloat16) {
  return guarded([&] { forward(*problem, is_bfloat16 != 0); });
}
int polyhead_backward(const Problem* problem, int is_bfloat16) {
  return guarded([&] { backward(*problem, is_bfloat16 != 0); });
}
int polyhead_pairwise_distance_sum(const void* x, const void* y, int64_t n, int64_t m, int dimension, int is_double,
                                   double* dx, double* dy, int threads, double* sum) {
  return guarded([&] {
    *sum = polyhead::pairwise_distance_sum(x, y, n, m, dimension, is_double != 0, dx, dy, threads);
  });
}
}

}  // namespace polyhead
