// SPDX-License-Identifier: GPL-3.0-or-later
// Kernels that begin before those ahead of them have ended (programmatic dependent launch). Here
// they run one after the other; what is looked at is whether they could have run together: before
// its wait a kernel must write nothing, and read nothing that a kernel writes which may still run.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace granary::test::ptx {

class EarlyLaunches {
  public:
    // A kernel begins; the one before it may still run where `early`.
    void begin(const std::string& kernel, bool early);
    // Something else than a kernel was done: all kernels have ended.
    void other_work() { launches_.clear(); }

    // Whether the kernel at hand has to wait before it touches what others write.
    bool early() const { return !launches_.empty() && launches_.back().may_run > 0; }
    void wrote(uint64_t begin, uint64_t end) { launches_.back().writes.push_back({begin, end}); }
    // Of a read before the wait: the kernel that writes there and may still run, or empty.
    std::string writer_of(uint64_t begin, uint64_t end) const;

    // Of a block that ends: whether it has waited, and let the next kernel begin before that. One
    // that has done neither has let it begin by its end.
    void block_ends(bool waited, bool let_next_begin_first) {
        launches_.back().any_waited |= waited;
        launches_.back().all_blocks_first &= let_next_begin_first || !waited;
    }
    // The kernel ends. False: it began early and no block has waited, so that its end says nothing
    // of those ahead.
    bool end() const { return !early() || launches_.back().any_waited; }

  private:
    struct Range {
        uint64_t begin, end;
    };
    struct Launch {
        std::string kernel;
        size_t may_run = 0;  // kernels ahead of it that may still run when it begins
        bool any_waited = false, all_blocks_first = true;
        std::vector<Range> writes;  // in order from when the next kernel begins
    };
    std::deque<Launch> launches_;  // the last one is at hand
};

}  // namespace granary::test::ptx
