// The backward pass, on transposed tiles of 128 keys x 64 queries: scores S^T = K Q^T.
//
// With queries along the lanes, what belongs to a row of weights is one vector, and the weights and score gradients come
// out as the very operands dV += W^T dO and dK += dS^T Q need. Every function and statistic is one formula: with
// W = a g(s) the weights that multiply the values,
//
//     dS = g'(s) (a dO V^T + c + e log g(s)),
//
// where a, c, e are per query (`RowFactors`): a = 1 / mass when g is normalised, else 1; c carries -dO.O, the gradients
// of log mass and of entropy; e that of entropy. A thread takes whole key heads where there are enough; else the key
// blocks of one head are dealt out in turn, each share with a dQ of its own, added in a fixed order.
#include <vector>
#include "functions.h"
#include "gemm.h"
#include "visibility.h"

namespace polyhead {
namespace {

constexpr int kKeyBlock = 128, kQueryBlock = 64;
constexpr int64_t kSharesBytes = 64 << 20;  // at most this much memory for the dQ of all shares

struct RowFactors {  // of one head, each (queries rounded up to kQueryBlock)
  float *offset, *anchor, *a, *c, *e;
};

template <class T>
struct Tile {
  float *scores, *d_weights;  // S^T and V dO^T, each keys x kQueryBlock; overwritten for float
  T *weights, *d_scores;      // W^T and dS^T, each keys x kQueryBlock; the above for float
  T* d_scores_pairs;          // bfloat16: dS^T in pairs of keys
  int keys;
  float scale;
  RowFactors row;
  const TileMask* mask;
};

template <class F, bool in_logs, bool partial, bool entropy, class T>
void weigh_tile(const Tile<T>& t) {
  constexpr bool kPairs = std::is_same_v<T, bfloat16>;
  for (int i = 0; i < kQueryBlock; i += kLanes) {
    const Floats offset = load(t.row.offset + i), anchor = load(t.row.anchor + i);
    const Floats a = load(t.row.a + i), c = load(t.row.c + i), e = load(t.row.e + i);
    for (int j = 0; j < t.keys; j++) {
      const int64_t at = (int64_t)j * kQueryBlock + i;
      Floats s = load(t.scores + at), upstream = load(t.d_weights + at);
      const uint16_t bits = partial ? t.mask->words(j)[i / kLanes] : 0xffff;
      if (partial) s = keep(bits, s), upstream = keep(bits, upstream);  // hidden entries may be anything
      s = F::takes_t ? s * t.scale + offset : s * t.scale;
      Floats log_weight;
      Weight g = weigh<F, in_logs>(s, anchor, log_weight, entropy);
      upstream = a * upstream + c;
      if (entropy) upstream += e * log_weight;
      Floats w = a * g.value, ds = upstream * g.slope;
      if (partial) w = keep(bits, w), ds = keep(bits, ds);
      store(t.weights + at, w);
      store(t.d_scores + at, ds);
    }
  }
  if constexpr (kPairs) pack_pairs(t.d_scores, kQueryBlock, t.keys, kQueryBlock, t.d_scores_pairs, t.keys);
}

template <class F, bool in_logs, class T>
void weigh_tile(const Tile<T>& t, bool partial, bool entropy) {
  if (partial && entropy) weigh_tile<F, in_logs, true, true>(t);
  if (partial && !entropy) weigh_tile<F, in_logs, true, false>(t);
  if (!partial && entropy) weigh_tile<F, in_logs, false, true>(t);
  if (!partial && !entropy) weigh_tile<F, in_logs, false, false>(t);
}

template <class T>
class Backward {
 public:
  explicit Backward(const Problem& p)
      : p_(p),
        key_blocks_((p.keys + kKeyBlock - 1) / kKeyBlock),
        query_blocks_((p.queries + kQueryBlock - 1) / kQueryBlock) {}

  void run() {
    const int64_t pairs = p_.batches * p_.kv_heads;
    const bool whole_heads = p_.threads == 1 || pairs >= 2 * p_.threads;
    const int64_t dq_bytes = 4 * query_blocks_ * kQueryBlock * p_.head_dim;
    if (!whole_heads) {
      const int64_t fit = kSharesBytes / std::max<int64_t>(1, pairs * dq_bytes);
      shares_ = std::max<int64_t>(1, std::min<int64_t>({p_.threads, key_blocks_, fit}));
    }
    for (int i = 0; i < p_.threads; i++) scratch_.emplace_back(p_);
    for (int64_t i = 0; i < (whole_heads ? std::min<int64_t>(p_.threads, pairs) : pairs); i++)
      packed_.emplace_back(p_, key_blocks_, query_blocks_, shares_);
    if (whole_heads) {
      run_tasks(p_.threads, pairs, [&](int64_t pair, int thread) { whole_head(pair, thread); });
    } else {
      shared_heads(pairs);
    }
  }

 private:
  static constexpr bool kPairs = std::is_same_v<T, bfloat16>;

  struct Packed {  // of one key head and, in turn, each query head that uses it
    Packed(const Problem& p, int64_t key_blocks, int64_t query_blocks, int64_t shares)
        : k_transposed(key_blocks * kKeyBlock * p.head_dim),
          last_k(kKeyBlock * p.head_dim),
          last_v(kKeyBlock * p.value_dim),
          dk(key_blocks * kKeyBlock * p.head_dim),
          dv(key_blocks * kKeyBlock * p.value_dim),
          q_transposed(query_blocks * kQueryBlock * p.head_dim),
          d_out_transposed(query_blocks * kQueryBlock * p.value_dim),
          q((kPairs ? query_blocks : 1) * kQueryBlock * p.head_dim),
          d_out((kPairs ? query_blocks : 1) * kQueryBlock * p.value_dim),
          dq(shares * query_blocks * kQueryBlock * p.head_dim),
          factors(5 * query_blocks * kQueryBlock),
          in_logs(query_blocks) {}
    Buffer<T> k_transposed;                    // blocks of head_dim x kKeyBlock
    Buffer<T> last_k, last_v;                  // the last block, when it is ragged, padded
    Buffer<float> dk, dv;                      // sums over queries and repeats
    Buffer<T> q_transposed, d_out_transposed;  // blocks of head_dim (value_dim) x kQueryBlock
    Buffer<T> q, d_out;                        // bfloat16: all blocks in pairs; float: the last, when ragged, padded
    Buffer<float> dq;                          // for each share, blocks of head_dim x kQueryBlock
    Buffer<float> factors;
    std::vector<uint8_t> in_logs;  // whether a block of queries has a fragile row
  };

  struct Scratch {  // of one thread
    explicit Scratch(const Problem& p)
        : scores(kKeyBlock * kQueryBlock),
          d_weights(kKeyBlock * kQueryBlock),
          weights(kPairs ? kKeyBlock * kQueryBlock : 0),
          d_scores(kPairs ? kKeyBlock * kQueryBlock : 0),
          d_scores_pairs(kPairs ? kKeyBlock * kQueryBlock : 0),
          k_pairs(kPairs ? kKeyBlock * p.head_dim : 0),
          dq(kQueryBlock * p.head_dim),
          mask(p, kKeyBlock, kQueryBlock) {}
    Buffer<float> scores, d_weights;
    Buffer<T> weights, d_scores, d_scores_pairs, k_pairs;
    Buffer<float> dq;
    TileMask mask;
  };

  void whole_head(int64_t pair, int thread) {
    Packed& packed = packed_[thread];
    Scratch& s = scratch_[thread];
    for (int64_t block = 0; block < key_blocks_; block++) pack_keys(packed, s, pair, block);
    for (int64_t repeat = 0; repeat < p_.repeats(); repeat++) {
      for (int64_t block = 0; block < query_blocks_; block++) pack_queries(packed, pair, repeat, block);
      for (int64_t block = 0; block < key_blocks_; block++) key_block(packed, s, pair, repeat, block, 0);
      for (int64_t block = 0; block < query_blocks_; block++) write_dq(packed, s, pair, repeat, block);
    }
    for (int64_t block = 0; block < key_blocks_; block++) write_dk_dv(packed, pair, block);
  }

  void shared_heads(int64_t pairs) {
    auto each_block = [&](int64_t blocks, auto&& body) {
      run_tasks(p_.threads, pairs * blocks,
                [&](int64_t task, int thread) { body(task / blocks, task % blocks, scratch_[thread]); });
    };
    each_block(key_blocks_, [&](int64_t pair, int64_t block, Scratch& s) { pack_keys(packed_[pair], s, pair, block); });
    for (int64_t repeat = 0; repeat < p_.repeats(); repeat++) {
      each_block(query_blocks_,
                 [&](int64_t pair, int64_t block, Scratch&) { pack_queries(packed_[pair], pair, repeat, block); });
      each_block(shares_, [&](int64_t pair, int64_t share, Scratch& s) {
        for (int64_t block = share; block < key_blocks_; block += shares_)
          key_block(packed_[pair], s, pair, repeat, block, share);
      });
      each_block(query_blocks_,
                 [&](int64_t pair, int64_t block, Scratch& s) { write_dq(packed_[pair], s, pair, repeat, block); });
    }
    each_block(key_blocks_, [&](int64_t pair, int64_t block, Scratch&) { write_dk_dv(packed_[pair], pair, block); });
  }

  static int in_block(int64_t length, int64_t block, int size) {
    return int(std::min<int64_t>(size, length - block * size));
  }
  int64_t batch_of(int64_t pair) const { return pair / p_.kv_heads; }
  int64_t kv_head_of(int64_t pair) const { return pair % p_.kv_heads; }
  int64_t head_of(int64_t pair, int64_t repeat) const { return kv_head_of(pair) * p_.repeats() + repeat; }

  RowFactors factors(const Packed& packed, int64_t block) const {
    const int64_t size = query_blocks_ * kQueryBlock;
    float* from = packed.factors.get() + block * kQueryBlock;
    return {from, from + size, from + 2 * size, from + 3 * size, from + 4 * size};
  }

  void pack_keys(Packed& to, Scratch& s, int64_t pair, int64_t block) const {
    const int64_t j = block * kKeyBlock;
    const int keys = in_block(p_.keys, block, kKeyBlock);
    const T* k = row((const T*)p_.k, p_.k_strides, batch_of(pair), kv_head_of(pair), j);
    const T* v = row((const T*)p_.v, p_.v_strides, batch_of(pair), kv_head_of(pair), j);
    pack_left_transposed(k, p_.k_strides.row, keys, p_.head_dim, to.k_transposed.get() + j * p_.head_dim, kKeyBlock,
                         s.k_pairs.get());
    if (keys < kKeyBlock) {
      copy_padded(k, p_.k_strides.row, keys, p_.head_dim, to.last_k.get(), kKeyBlock);
      copy_padded(v, p_.v_strides.row, keys, p_.value_dim, to.last_v.get(), kKeyBlock);
    }
    std::fill_n(to.dk.get() + j * p_.head_dim, kKeyBlock * p_.head_dim, 0.f);
    std::fill_n(to.dv.get() + j * p_.value_dim, kKeyBlock * p_.value_dim, 0.f);
  }

  void pack_queries(Packed& to, int64_t pair, int64_t repeat, int64_t block) const {
    const int64_t b = batch_of(pair), h = head_of(pair, repeat), i = block * kQueryBlock;
    const int rows = in_block(p_.queries, block, kQueryBlock);
    const T* q = row((const T*)p_.q, p_.q_strides, b, h, i);
    const T* d_out = row((const T*)p_.d_out, p_.d_out_strides, b, h, i);
    pack_transposed(q, p_.q_strides.row, rows, p_.head_dim, to.q_transposed.get() + i * p_.head_dim, kQueryBlock);
    pack_transposed(d_out, p_.d_out_strides.row, rows, p_.value_dim, to.d_out_transposed.get() + i * p_.value_dim,
                    kQueryBlock);
    if constexpr (kPairs) {
      pack_pairs(q, p_.q_strides.row, rows, p_.head_dim, to.q.get() + i * p_.head_dim, kQueryBlock);
      pack_pairs(d_out, p_.d_out_strides.row, rows, p_.value_dim, to.d_out.get() + i * p_.value_dim, kQueryBlock);
    } else if (rows < kQueryBlock) {
      copy_padded(q, p_.q_strides.row, rows, p_.head_dim, to.q.get(), kQueryBlock);
      copy_padded(d_out, p_.d_out_strides.row, rows, p_.value_dim, to.d_out.get(), kQueryBlock);
    }
    for (int64_t share = 0; share < shares_; share++)
      std::fill_n(to.dq.get() + (share * query_blocks_ + block) * kQueryBlock * p_.head_dim, kQueryBlock * p_.head_dim,
                  0.f);
    fill_factors(to, b, h, block, rows, q, d_out);
  }

  void fill_factors(Packed& to, int64_t b, int64_t h, int64_t block, int rows, const T*, const T* d_out) const {
    const bool normalised = WITH_FUNCTION(p_.functions[h], F::normalised);
    bool in_logs = WITH_FUNCTION(p_.functions[h], F::always_in_logs);
    const int64_t i = block * kQueryBlock, index = (b * p_.heads + h) * p_.queries + i;
    const float* log_mass = p_.log_mass + index;
    for (int r = 0; r < rows; r++) in_logs |= log_mass[r] != -INFINITY && is_fragile(log_mass[r]);
    to.in_logs[block] = in_logs;

    const RowFactors to_row = factors(to, block);
    for (int r = 0; r < kQueryBlock; r++) {
      to_row.offset[r] = to_row.anchor[r] = to_row.a[r] = to_row.c[r] = to_row.e[r] = 0;
      if (r >= rows || log_mass[r] == -INFINITY) continue;  // padding, or a row that sees nothing: no gradient
      if (p_.log_t) to_row.offset[r] = -*row(p_.log_t, p_.log_t_strides, b, h, i + r);
      const float d_entropy = p_.d_entropy ? p_.d_entropy[index + r] : 0;
      const float entropy = p_.entropy ? p_.entropy[index + r] : 0;
      float constant = p_.d_log_mass ? p_.d_log_mass[index + r] : 0;
      if (normalised)
        constant -= dot(row((const T*)p_.out, p_.out_strides, b, h, i + r), d_out + r * p_.d_out_strides.row);
      if (in_logs) {  // weights come as shares e^(log g - log mass)
        to_row.anchor[r] = -log_mass[r];
        to_row.a[r] = normalised ? 1 : std::exp(log_mass[r]);
        to_row.c[r] = constant - d_entropy * entropy;
        to_row.e[r] = -d_entropy;
      } else {
        const float per_mass = std::exp(-log_mass[r]);
        to_row.a[r] = normalised ? per_mass : 1;
        to_row.c[r] = (constant + d_entropy * (log_mass[r] - entropy)) * per_mass;
        to_row.e[r] = -d_entropy * per_mass;
      }
    }
  }

  float dot(const T* x, const T* y) const {
    Floats total = {};
    int64_t c = 0;
    for (; c + kLanes <= p_.value_dim; c += kLanes) total += load(x + c) * load(y + c);
    float rest = 0;
    for (; c < p_.value_dim; c++) rest += to_float(x[c]) * to_float(y[c]);
    return rest + sum(total);
  }

  // One block of keys against every block of queries of one head that may see it.
  void key_block(Packed& packed, Scratch& s, int64_t pair, int64_t repeat, int64_t block, int64_t share) const {
    const int64_t b = batch_of(pair), h = head_of(pair, repeat), j = block * kKeyBlock;
    Block<T> k{row((const T*)p_.k, p_.k_strides, b, kv_head_of(pair), j), p_.k_strides.row};
    Block<T> v{row((const T*)p_.v, p_.v_strides, b, kv_head_of(pair), j), p_.v_strides.row};
    if (in_block(p_.keys, block, kKeyBlock) < kKeyBlock) {
      k = {packed.last_k.get(), p_.head_dim};
      v = {packed.last_v.get(), p_.value_dim};
    }
    const int64_t limit = p_.key_limit(b) - j;
    const int64_t first = p_.is_causal ? std::max<int64_t>(0, j - p_.offset()) / kQueryBlock : 0;
    for (int64_t query_block = first; query_block < query_blocks_; query_block++) {
      const int64_t i = query_block * kQueryBlock;
      // leave out keys that no query of the block sees, in steps of 64
      int64_t keys = std::min<int64_t>(kKeyBlock, limit);
      if (p_.is_causal) keys = std::min(keys, i + in_block(p_.queries, query_block, kQueryBlock) + p_.offset() - j);
      if (keys <= 0) continue;
      keys = round_up(keys, 64);
      const Seen seen = s.mask.by_key(b, h, j, keys, i, kQueryBlock);
      if (seen != Seen::nothing) tile(packed, s, b, h, j, query_block, int(keys), k, v, share, seen == Seen::some);
    }
  }

  void tile(Packed& packed, Scratch& s, int64_t b, int64_t h, int64_t j, int64_t query_block, int keys, Block<T> k,
            Block<T> v, int64_t share, bool partial) const {
    const int64_t D = p_.head_dim, E = p_.value_dim, i = query_block * kQueryBlock;
    multiply(keys, kQueryBlock, D, k.data, k.stride, packed.q_transposed.get() + i * D, kQueryBlock, s.scores.get(),
             kQueryBlock);
    multiply(keys, kQueryBlock, E, v.data, v.stride, packed.d_out_transposed.get() + i * E, kQueryBlock,
             s.d_weights.get(), kQueryBlock);

    T *weights = s.weights.get(), *d_scores = s.d_scores.get(), *d_scores_pairs = s.d_scores_pairs.get();
    if constexpr (!kPairs) weights = s.scores.get(), d_scores = d_scores_pairs = s.d_weights.get();
    const Tile<T> t{s.scores.get(), s.d_weights.get(), weights, d_scores, d_scores_pairs, keys,
                    p_.scale,       factors(packed, query_block), &s.mask};
    const bool in_logs = packed.in_logs[query_block], entropy = p_.d_entropy != nullptr;
    WITH_FUNCTION(p_.functions[h], (in_logs ? weigh_tile<F, true>(t, partial, entropy)
                                            : weigh_tile<F, F::always_in_logs>(t, partial, entropy)));

    const Block<T> q = right_operand(packed.q, p_.q, p_.q_strides, b, h, query_block, D);
    const Block<T> d_out = right_operand(packed.d_out, p_.d_out, p_.d_out_strides, b, h, query_block, E);
    multiply_add(keys, E, kQueryBlock, weights, kQueryBlock, d_out.data, d_out.stride, packed.dv.get() + j * E, E);
    multiply_add(keys, D, kQueryBlock, d_scores, kQueryBlock, q.data, q.stride, packed.dk.get() + j * D, D);
    multiply_add(D, kQueryBlock, keys, packed.k_transposed.get() + j * D, kKeyBlock, d_scores_pairs, kQueryBlock,
                 packed.dq.get() + (share * query_blocks_ + query_block) * kQueryBlock * D, kQueryBlock);
  }

  // A block of q or d_out as the right operand of a product: in pairs, or where it lies, or its padded copy.
  Block<T> right_operand(const Buffer<T>& packed, const void* x, const Strides& strides, int64_t b, int64_t h,
                         int64_t query_block, int64_t columns) const {
    const int64_t i = query_block * kQueryBlock;
    if (kPairs) return {packed.get() + i * columns, columns};
    if (in_block(p_.queries, query_block, kQueryBlock) < kQueryBlock) return {packed.get(), columns};
    return {row((const T*)x, strides, b, h, i), strides.row};
  }

  void write_dq(Packed& packed, Scratch& s, int64_t pair, int64_t repeat, int64_t block) const {
    const int64_t size = kQueryBlock * p_.head_dim;
    float* total = packed.dq.get() + block * size;
    for (int64_t share = 1; share < shares_; share++) {
      const float* part = total + share * query_blocks_ * size;
      for (int64_t c = 0; c < size; c += kLanes) store(total + c, load(total + c) + load(part + c));
    }
    const int rows = in_block(p_.queries, block, kQueryBlock);
    transpose((const uint32_t*)total, kQueryBlock, int(p_.head_dim), rows, (uint32_t*)s.dq.get(), p_.head_dim,
              int(p_.head_dim));
    T* dq = row((T*)p_.dq, p_.dq_strides, batch_of(pair), head_of(pair, repeat), block * kQueryBlock);
    for (int r = 0; r < rows; r++)
      store_scaled(dq + r * p_.dq_strides.row, s.dq.get() + r * p_.head_dim, p_.head_dim, p_.scale);
  }

  void write_dk_dv(const Packed& packed, int64_t pair, int64_t block) const {
    const int64_t j = block * kKeyBlock;
    T* dk = row((T*)p_.dk, p_.dk_strides, batch_of(pair), kv_head_of(pair), j);
    T* dv = row((T*)p_.dv, p_.dv_strides, batch_of(pair), kv_head_of(pair), j);
    for (int r = 0; r < in_block(p_.keys, block, kKeyBlock); r++) {
      store_scaled(dk + r * p_.dk_strides.row, packed.dk.get() + (j + r) * p_.head_dim, p_.head_dim, p_.scale);
      store_scaled(dv + r * p_.dv_strides.row, packed.dv.get() + (j + r) * p_.value_dim, p_.value_dim, 1);
    }
  }

  const Problem& p_;
  const int64_t key_blocks_, query_blocks_;
  int64_t shares_ = 1;
  std::vector<Packed> packed_;
  std::vector<Scratch> scratch_;
};

}  // namespace

void backward(const Problem& problem, bool is_bfloat16) {
  if (is_bfloat16) {
    Backward<bfloat16>(problem).run();
  } else {
    Backward<float>(problem).run();
  }
}

}  // namespace polyhead
