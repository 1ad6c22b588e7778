// SPDX-License-Identifier: GPL-3.0-or-later
// What one rendering works with: its limits, counters and clock, and the makers of its values.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/limits.h"
#include "engine/text/template/value.h"

namespace granary::jinja {

struct Frame;

class Workspace {
  public:
    Workspace(const Limits& limits, std::optional<std::string> now)
        : limits_(limits), budget_(limits.live_bytes), now_(std::move(now)) {}
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    const Limits& limits() const { return limits_; }
    Budget& budget() { return budget_; }
    const std::optional<std::string>& now() const { return now_; }  // ISO 8601; else the clock's

    // Counts work and stops a template that never ends.
    void step(uint64_t count = 1) {
        steps_ += count;
        if (steps_ > limits_.steps) out_of_steps();
    }
    void touch(size_t bytes) { step(bytes / 64); }  // copied or compared
    void scan(size_t bytes) { step(bytes / 16); }   // looked at one by one
    uint64_t steps() const { return steps_; }

    // Throw if a text or a list of this size may not be made.
    void check_text(uint64_t bytes) const;
    void check_items(uint64_t count) const;

    Value text(std::string bytes, bool markup = false);
    Value list(std::vector<Value> items) {
        return sequence(Sequence::Flavor::list, std::move(items));
    }
    Value tuple(std::vector<Value> items) {
        return sequence(Sequence::Flavor::tuple, std::move(items));
    }
    Value sequence(Sequence::Flavor flavor, std::vector<Value> items);
    Value range(int64_t start, int64_t stop, int64_t step);
    // Keys that repeat keep their first place and their last value.
    Value mapping(std::vector<std::pair<Value, Value>> entries);
    Value iterator(std::vector<Value> items);
    Value name_space(std::vector<std::pair<std::string, Value>> attributes);
    Value absent(Absence::Why why, const char* owner, std::string name);

    // A frame that functions refer to: emptied at the end, so that no cycle outlives the rendering.
    void keep_frame(Ref<Frame> frame);

    Position at;  // of the node under evaluation, for messages

  private:
    [[noreturn]] void out_of_steps() const;
    int depth_above(const std::vector<Value>& items) const;

    const Limits& limits_;
    Budget budget_;
    std::optional<std::string> now_;
    uint64_t steps_ = 0;
    std::vector<Ref<Namespace>> namespaces_;
    std::vector<Ref<Frame>> frames_;
};

// Grows a text inside the limits.
class TextBuilder {
  public:
    explicit TextBuilder(Workspace& workspace) : workspace_(workspace) {}

    TextBuilder& operator<<(std::string_view part) {
        if (part.size() > 64) workspace_.touch(part.size());
        reserve(text_.size() + part.size());
        text_ += part;
        return *this;
    }
    TextBuilder& operator<<(char c) { return *this << std::string_view(&c, 1); }
    // part, count times
    void repeat(std::string_view part, int64_t count);

    size_t size() const { return text_.size(); }
    std::string take() { return std::move(text_); }
    Workspace& workspace() { return workspace_; }

  private:
    // Charges what the text holds while it grows; small ones are not worth the counting.
    void reserve(size_t size) {
        constexpr size_t kUncounted = 4096;
        if (size <= std::max(kUncounted, charged_)) return;
        workspace_.check_text(size);
        const size_t wanted = std::max(size, 2 * charged_);
        charge_.add(wanted - charged_);
        charged_ = wanted;
    }

    Workspace& workspace_;
    std::string text_;
    Charge charge_{workspace_.budget(), 0};
    size_t charged_ = 0;
};

}  // namespace granary::jinja
