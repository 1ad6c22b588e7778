// SPDX-License-Identifier: GPL-3.0-or-later
// Bytes that the values of one rendering hold, with an end.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/text/template/failure.h"

namespace granary::jinja {

class Budget {
  public:
    explicit Budget(size_t limit) : limit_(limit) {}
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    void take(size_t bytes) {
        if (bytes > limit_ - used_) {
            stop("the template's values need more than " + format_bytes(limit_),
                 ErrorKind::refused);
        }
        used_ += bytes;
    }
    void give(size_t bytes) noexcept { used_ -= bytes; }
    size_t used() const { return used_; }

  private:
    size_t limit_;
    size_t used_ = 0;
};

// A part of a Budget, given back when its owner goes. The Budget must live longer.
class Charge {
  public:
    Charge() = default;
    Charge(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) { budget.take(bytes); }
    Charge(Charge&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Charge& operator=(Charge&& other) noexcept {
        if (this != &other) {
            release();
            budget_ = std::exchange(other.budget_, nullptr);
            bytes_ = other.bytes_;
        }
        return *this;
    }
    ~Charge() { release(); }

    void add(size_t bytes) {
        budget_->take(bytes);
        bytes_ += bytes;
    }

  private:
    void release() noexcept {
        if (budget_ != nullptr) budget_->give(bytes_);
    }
    Budget* budget_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace granary::jinja
