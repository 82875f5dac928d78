// Which entries of a tile of scores may be seen: nothing, everything, or one bit per entry.
#pragma once
#include <algorithm>
#include <vector>
#include "problem.h"

namespace polyhead {

enum class Seen { nothing, some, everything };

class TileMask {
 public:
  // `rows` x `columns` is the largest tile; columns a multiple of 64
  TileMask(const Problem& problem, int rows, int columns)
      : p_(problem), groups_(columns / kLanes), words_(rows * groups_), ends_(rows) {}

  // the bits of row r, one word for every 16 columns
  const uint16_t* words(int r) const { return words_.data() + r * groups_; }
  // one past the last visible column of row r, rounded up to 16 (`by_query` only)
  int end(int r) const { return ends_[r]; }

  // Rows are queries i, ..., i + rows; columns keys j, ..., j + columns, of which those past the last key are hidden.
  Seen by_query(int64_t batch, int64_t head, int64_t i, int rows, int64_t j, int columns) {
    const int64_t keys = p_.key_limit(batch) - j;
    const bool is_diagonal = p_.is_causal && j + columns - 1 > i + p_.offset();
    if (keys <= 0 || (p_.is_causal && j > i + rows - 1 + p_.offset())) return Seen::nothing;
    const Seen documents = compare_documents(batch, i, rows, j, int(std::min<int64_t>(columns, keys)));
    if (documents == Seen::nothing) return Seen::nothing;
    if (keys >= columns && !is_diagonal && documents == Seen::everything && !p_.mask) return Seen::everything;

    uint16_t any = 0, every = 0xffff;
    for (int r = 0; r < rows; r++) {
      int64_t bound = p_.is_causal ? std::min(keys, i + r + p_.offset() + 1 - j) : keys;
      uint16_t* word = words_.data() + r * groups_;
      ends_[r] = 0;
      for (int g = 0; g < columns / kLanes; g++) {
        uint16_t bits = low_bits(bound - g * kLanes);
        if (documents == Seen::some && bits) {
          const int32_t* ids = p_.documents + batch * p_.documents_stride;
          bits &= equal_bits(load(ids + j + g * kLanes), ids[i + r]);
        }
        if (p_.mask && bits) bits &= mask_bits(batch, head, i + r, j + g * kLanes);
        word[g] = bits;
        any |= bits;
        every &= bits;
        if (bits) ends_[r] = (g + 1) * kLanes;
      }
    }
    return !any ? Seen::nothing : every == 0xffff ? Seen::everything : Seen::some;
  }

  // Rows are keys j, ..., j + rows; columns are queries i, ..., i + columns, of which those past the last query are
  // marked as it comes: their weights are zeroed by their row factors.
  Seen by_key(int64_t batch, int64_t head, int64_t j, int rows, int64_t i, int columns) {
    const int queries = int(std::min<int64_t>(columns, p_.queries - i));
    const int64_t keys = p_.key_limit(batch) - j;
    const bool is_diagonal = p_.is_causal && j + rows - 1 > i + p_.offset();
    if (keys <= 0 || (p_.is_causal && j > i + queries - 1 + p_.offset())) return Seen::nothing;
    const Seen documents = compare_documents(batch, i, queries, j, int(std::min<int64_t>(rows, keys)));
    if (documents == Seen::nothing) return Seen::nothing;
    if (keys >= rows && !is_diagonal && documents == Seen::everything && !p_.mask) return Seen::everything;

    uint16_t any = 0, every = 0xffff;
    if (p_.mask) gather_mask(batch, head, j, int(std::min<int64_t>(rows, keys)), i, queries);
    for (int r = 0; r < rows; r++) {
      int64_t first = p_.is_causal ? j + r - p_.offset() - i : 0;  // first query that sees this key
      uint16_t* word = words_.data() + r * groups_;
      for (int g = 0; g < columns / kLanes; g++) {
        uint16_t bits = r < keys ? ~low_bits(first - g * kLanes) : 0;
        if (documents == Seen::some && bits) {
          const int32_t* ids = p_.documents + batch * p_.documents_stride;
          bits &= equal_bits(load(ids + i + g * kLanes), ids[j + r]);
        }
        if (p_.mask) bits &= word[g];
        word[g] = bits;
        any |= bits;
        every &= bits;
      }
    }
    return !any ? Seen::nothing : every == 0xffff ? Seen::everything : Seen::some;
  }

 private:
  // whether two ranges of tokens share documents: none, perhaps some, or all of one document
  Seen compare_documents(int64_t batch, int64_t i, int rows, int64_t j, int columns) const {
    if (!p_.documents) return Seen::everything;
    const int32_t* ids = p_.documents + batch * p_.documents_stride;
    auto [low, high] = std::minmax_element(ids + i, ids + i + rows);
    auto [lowest, highest] = std::minmax_element(ids + j, ids + j + columns);
    if (*high < *lowest || *low > *highest) return Seen::nothing;
    return *low == *high && *lowest == *highest ? Seen::everything : Seen::some;
  }

  uint16_t mask_bits(int64_t batch, int64_t head, int64_t i, int64_t j) const {
    const uint8_t* from = row(p_.mask, p_.mask_strides, batch, head, i) + j * p_.mask_column_stride;
    const int count = int(std::min<int64_t>(kLanes, p_.keys - j));
    uint16_t bits = 0;
    for (int c = 0; c < count; c++) bits |= uint16_t(from[c * p_.mask_column_stride] != 0) << c;
    return bits;
  }

  // the mask's bits with keys as rows
  void gather_mask(int64_t batch, int64_t head, int64_t j, int keys, int64_t i, int queries) {
    std::fill(words_.begin(), words_.end(), 0);
    for (int c = 0; c < queries; c++) {
      const uint8_t* from = row(p_.mask, p_.mask_strides, batch, head, i + c) + j * p_.mask_column_stride;
      uint16_t* word = words_.data() + c / kLanes;
      for (int r = 0; r < keys; r++)
        word[r * groups_] |= uint16_t(from[r * p_.mask_column_stride] != 0) << (c % kLanes);
    }
  }

  const Problem& p_;
  int groups_;
  std::vector<uint16_t> words_;
  std::vector<int> ends_;
};

}  // namespace polyhead
