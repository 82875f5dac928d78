// The forward pass: scores of up to 128 queries x 512 keys, their weights in place, and the product with the values.
//
// Keys are packed transposed once per key head. Where there are enough key heads, a thread takes a whole one, so what it
// packed stays in its cache; else the blocks of queries of all heads are shared out, the longest first.
#include <cfloat>
#include <vector>
#include "functions.h"
#include "gemm.h"
#include "visibility.h"

namespace polyhead {
namespace {

constexpr int kQueryBlock = 128, kKeyBlock = 512;

// What has been summed over the keys of each query of a block.
struct RowSums {
  float mass[kQueryBlock];      // of g, or of e^(log g - top)
  float top[kQueryBlock];       // running maximum of log g, in logarithms only
  float log_sum[kQueryBlock];   // of g log g, or of e^(log g - top) (log g - top)
  float max_weight[kQueryBlock];
  bool sees[kQueryBlock];
};

template <class T>
struct Tile {
  float* scores;  // rows x stride, overwritten
  T* weights;     // rows x stride; the scores themselves for float
  int rows, columns, stride;
  float scale;
  const float* offset;  // (rows), added to the scaled scores: -log t
  const TileMask* mask;
  RowSums* sums;
  float* out;  // rows x value_dim, rescaled when a running maximum rises
  int value_dim;
};

// Shift a row's sums from an old running maximum to a new one.
void raise_top(RowSums& sums, int r, float top, float* out, int value_dim) {
  const float rise = top - sums.top[r];
  const float factor = std::exp(-rise);  // 0 for the first keys the row sees
  sums.log_sum[r] = sums.mass[r] > 0 ? factor * (sums.log_sum[r] - sums.mass[r] * rise) : 0;
  sums.mass[r] *= factor;
  sums.top[r] = top;
  for (int c = 0; c < value_dim; c++) out[c] *= factor;
}

// Scores to weights, row by row, with their sums. `partial`: some entries are hidden; `statistics`: entropy too.
template <class F, bool in_logs, bool partial, bool statistics, class T>
void weigh_tile(const Tile<T>& t) {
  for (int r = 0; r < t.rows; r++) {
    float* scores = t.scores + (int64_t)r * t.stride;
    T* weights = t.weights + (int64_t)r * t.stride;
    const uint16_t* words = partial ? t.mask->words(r) : nullptr;
    const int end = partial ? t.mask->end(r) : t.columns;
    const Floats offset = all(F::takes_t ? t.offset[r] : 0.f);
    t.sums->sees[r] |= end > 0;

    auto score = [&](int j) {
      Floats raw = partial ? keep(words[j / kLanes], load(scores + j)) : load(scores + j);
      return F::takes_t ? raw * t.scale + offset : raw * t.scale;
    };
    float top = 0;
    if constexpr (in_logs) {
      Floats most[2] = {all(-INFINITY), all(-INFINITY)};
      for (int j = 0; j < end; j += kLanes) {
        Floats log_weight = F::log_weight(score(j));
        store(scores + j, log_weight);  // softmax's too: made twice, it would round twice, and differ from its own top
        if (partial) log_weight = keep(words[j / kLanes], log_weight, all(-INFINITY));
        most[j / kLanes % 2] = larger(most[j / kLanes % 2], log_weight);
      }
      top = std::max(t.sums->top[r], largest(larger(most[0], most[1])));
      if (top > t.sums->top[r]) raise_top(*t.sums, r, top, t.out + (int64_t)r * t.value_dim, t.value_dim);
      if (top == -INFINITY) top = 0;  // nothing seen so far: every weight is masked or e^-inf
    }

    Floats mass[2] = {}, log_sum = {}, most = {};
    auto weigh = [&](int j, Floats& sum) {
      Floats x = in_logs ? load(scores + j) : score(j);
      Floats log_weight, g;
      if constexpr (in_logs) {
        log_weight = x - top;
        g = exp(log_weight);
      } else {
        g = F::weight(x);
        if (statistics) log_weight = F::log_weight(x);
      }
      if (partial) g = keep(words[j / kLanes], g);
      sum += g;
      if (statistics) {
        if (in_logs && partial) log_weight = keep(words[j / kLanes], log_weight);
        log_sum += g * log_weight;
        most = larger(most, g);
      }
      store(weights + j, g);
    };
    int j = 0;
    for (; j + 2 * kLanes <= end; j += 2 * kLanes) weigh(j, mass[0]), weigh(j + kLanes, mass[1]);
    if (j < end) weigh(j, mass[0]), j += kLanes;
    for (; j < t.columns; j += kLanes) store(weights + j, Floats{});
    t.sums->mass[r] += sum(mass[0] + mass[1]);
    if (statistics) {
      t.sums->log_sum[r] += sum(log_sum);
      t.sums->max_weight[r] = std::max(t.sums->max_weight[r], largest(most));
    }
  }
}

template <class F, bool in_logs, class T>
void weigh_tile(const Tile<T>& t, bool partial, bool statistics) {
  if (partial && statistics) weigh_tile<F, in_logs, true, true>(t);
  if (partial && !statistics) weigh_tile<F, in_logs, true, false>(t);
  if (!partial && statistics) weigh_tile<F, in_logs, false, true>(t);
  if (!partial && !statistics) weigh_tile<F, in_logs, false, false>(t);
}

template <class T>
class Forward {
 public:
  explicit Forward(const Problem& p)
      : p_(p),
        key_block_(int(std::min<int64_t>(kKeyBlock, round_up(p.keys, 64)))),
        key_blocks_((p.keys + key_block_ - 1) / key_block_),
        query_blocks_((p.queries + kQueryBlock - 1) / kQueryBlock) {}

  void run() {
    const int64_t pairs = p_.batches * p_.kv_heads;
    const bool whole_heads = p_.threads == 1 || pairs >= 2 * p_.threads;
    for (int i = 0; i < p_.threads; i++) scratch_.emplace_back(p_, key_block_);
    for (int64_t i = 0; i < (whole_heads ? std::min<int64_t>(p_.threads, pairs) : pairs); i++)
      packed_.emplace_back(p_, key_blocks_ * key_block_, key_block_);
    if (whole_heads) {
      run_tasks(p_.threads, pairs, [&](int64_t pair, int thread) {
        for (int64_t block = 0; block < key_blocks_; block++) pack(packed_[thread], pair, block);
        for (int64_t i = 0; i < p_.repeats() * query_blocks_; i++)
          attend(packed_[thread], scratch_[thread], pair, i / query_blocks_, i % query_blocks_);
      });
      return;
    }
    run_tasks(p_.threads, pairs * key_blocks_, [&](int64_t task, int) {
      pack(packed_[task / key_blocks_], task / key_blocks_, task % key_blocks_);
    });
    const int64_t heads = p_.batches * p_.heads;
    run_tasks(p_.threads, heads * query_blocks_, [&](int64_t task, int thread) {
      int64_t pair = task % heads / p_.repeats(), block = query_blocks_ - 1 - task / heads;  // causal: longest first
      attend(packed_[pair], scratch_[thread], pair, task % heads % p_.repeats(), block);
    });
  }

 private:
  static constexpr bool kPairs = std::is_same_v<T, bfloat16>;  // whether right operands are packed in pairs

  struct Packed {  // of one key head
    Packed(const Problem& p, int64_t keys, int key_block)
        : keys_transposed(keys * p.head_dim),
          values(kPairs ? keys * p.value_dim : 0),
          last_values(kPairs ? 0 : key_block * p.value_dim) {}
    Buffer<T> keys_transposed;  // blocks of head_dim x key_block
    Buffer<T> values;           // bfloat16: blocks of key_block x value_dim, in pairs
    Buffer<T> last_values;      // float: the last block, when it is ragged, padded
  };

  struct Scratch {  // of one thread
    Scratch(const Problem& p, int key_block)
        : scores(kQueryBlock * key_block),
          weights(kPairs ? kQueryBlock * key_block : 0),
          out(kQueryBlock * p.value_dim),
          queries(kQueryBlock * p.head_dim),
          mask(p, kQueryBlock, key_block) {}
    Buffer<float> scores;
    Buffer<T> weights;
    Buffer<float> out;
    Buffer<T> queries;  // the last block, when it is ragged, padded
    TileMask mask;
    RowSums sums;
    float offset[kQueryBlock];
  };

  int keys_in(int64_t block) const { return int(std::min<int64_t>(key_block_, p_.keys - block * key_block_)); }

  void pack(Packed& to, int64_t pair, int64_t block) const {
    const int64_t b = pair / p_.kv_heads, h = pair % p_.kv_heads, first = block * key_block_;
    const T* k = row((const T*)p_.k, p_.k_strides, b, h, first);
    const T* v = row((const T*)p_.v, p_.v_strides, b, h, first);
    const int keys = keys_in(block), padded = int(round_up(keys, 64));
    pack_transposed(k, p_.k_strides.row, keys, p_.head_dim, to.keys_transposed.get() + first * p_.head_dim, key_block_);
    if constexpr (kPairs) {
      pack_pairs(v, p_.v_strides.row, keys, p_.value_dim, to.values.get() + first * p_.value_dim, padded);
    } else if (keys < padded) {
      copy_padded(v, p_.v_strides.row, keys, p_.value_dim, to.last_values.get(), padded);
    }
  }

  Block<T> values(const Packed& packed, int64_t b, int64_t h, int64_t block) const {
    const int64_t first = block * key_block_;
    if (kPairs) return {packed.values.get() + first * p_.value_dim, p_.value_dim};
    if (keys_in(block) % 64) return {packed.last_values.get(), p_.value_dim};
    return {row((const T*)p_.v, p_.v_strides, b, h, first), p_.v_strides.row};
  }

  // One block of queries of one head, against every key it may see.
  void attend(const Packed& packed, Scratch& s, int64_t pair, int64_t repeat, int64_t block) const {
    const int64_t b = pair / p_.kv_heads, h = pair % p_.kv_heads * p_.repeats() + repeat, i = block * kQueryBlock;
    const int rows = int(std::min<int64_t>(kQueryBlock, p_.queries - i)), padded = int(round_up(rows, kLanes));
    Block<T> q{row((const T*)p_.q, p_.q_strides, b, h, i), p_.q_strides.row};
    if (rows < padded) {
      copy_padded(q.data, q.stride, rows, p_.head_dim, s.queries.get(), padded);
      q = {s.queries.get(), p_.head_dim};
    }
    for (int r = 0; r < rows; r++) s.offset[r] = p_.log_t ? -*row(p_.log_t, p_.log_t_strides, b, h, i + r) : 0;

    const bool normalised = WITH_FUNCTION(p_.functions[h], F::normalised);
    bool in_logs = WITH_FUNCTION(p_.functions[h], F::always_in_logs);
    sweep(packed, s, b, h, pair % p_.kv_heads, i, q, rows, padded, in_logs);
    if (!in_logs && (normalised || p_.entropy) && has_fragile_row(s.sums, rows)) {
      in_logs = true;
      sweep(packed, s, b, h, pair % p_.kv_heads, i, q, rows, padded, in_logs);
    }
    for (int r = 0; r < rows; r++) finish_row(s, b, h, i, r, in_logs, normalised);
  }

  static bool has_fragile_row(const RowSums& sums, int rows) {
    for (int r = 0; r < rows; r++)
      if (sums.sees[r] && is_fragile(std::log(sums.mass[r]))) return true;
    return false;
  }

  void sweep(const Packed& packed, Scratch& s, int64_t b, int64_t h, int64_t kv_head, int64_t i, Block<T> q, int rows,
             int padded, bool in_logs) const {
    const int64_t last = p_.is_causal ? i + rows + p_.offset() : p_.keys;
    const int64_t end = std::min({p_.keys, p_.key_limit(b), last});
    std::fill_n(s.out.get(), padded * p_.value_dim, 0.f);
    for (int r = 0; r < rows; r++) {
      s.sums.mass[r] = s.sums.log_sum[r] = s.sums.max_weight[r] = 0;
      s.sums.top[r] = -INFINITY;
      s.sums.sees[r] = false;
    }
    T* weights = s.weights.get();
    if constexpr (!kPairs) weights = s.scores.get();
    for (int64_t block = 0; block * key_block_ < end; block++) {
      const int64_t j = block * key_block_;
      // widths in steps of 64: the multiply compiles itself anew for every shape
      const int columns = int(round_up(std::min<int64_t>(key_block_, end - j), 64));
      const Seen seen = s.mask.by_query(b, h, i, rows, j, columns);
      if (seen == Seen::nothing) continue;
      multiply(padded, columns, p_.head_dim, q.data, q.stride, packed.keys_transposed.get() + j * p_.head_dim,
               key_block_, s.scores.get(), key_block_);
      const Tile<T> tile{s.scores.get(), weights,  rows,    columns,     key_block_,           p_.scale,
                         s.offset,       &s.mask, &s.sums, s.out.get(), int(p_.value_dim)};
      const bool partial = seen == Seen::some, statistics = p_.entropy != nullptr;
      WITH_FUNCTION(p_.functions[h], (in_logs ? weigh_tile<F, true>(tile, partial, statistics)
                                              : weigh_tile<F, F::always_in_logs>(tile, partial, statistics)));
      const Block<T> v = values(packed, b, kv_head, block);
      multiply_add(padded, p_.value_dim, columns, weights, key_block_, v.data, v.stride, s.out.get(), p_.value_dim);
    }
  }

  void finish_row(Scratch& s, int64_t b, int64_t h, int64_t i, int r, bool in_logs, bool normalised) const {
    const float mass = s.sums.mass[r], top = in_logs ? s.sums.top[r] : 0;
    const bool is_empty = mass == 0;
    const float log_mass = is_empty ? -INFINITY : top + std::log(mass);
    float factor = normalised ? 1 / mass : in_logs ? std::exp(top) : 1;
    if (is_empty) factor = 0;
    store_scaled(row((T*)p_.out, p_.out_strides, b, h, i + r), s.out.get() + (int64_t)r * p_.value_dim, p_.value_dim,
                 factor);
    const int64_t index = (b * p_.heads + h) * p_.queries + i + r;
    p_.log_mass[index] = log_mass;
    if (!p_.entropy) return;
    const float entropy = is_empty ? 0 : std::log(mass) - s.sums.log_sum[r] / mass;
    p_.entropy[index] = entropy < 0 ? 0 : entropy;
    p_.max_weight[index] = is_empty ? 0 : (in_logs ? 1 : s.sums.max_weight[r]) / mass;
  }

  const Problem& p_;
  const int key_block_;
  const int64_t key_blocks_, query_blocks_;
  std::vector<Packed> packed_;
  std::vector<Scratch> scratch_;
};

}  // namespace

void forward(const Problem& problem, bool is_bfloat16) {
  if (is_bfloat16) {
    Forward<bfloat16>(problem).run();
  } else {
    Forward<float>(problem).run();
  }
}

}  // namespace polyhead
