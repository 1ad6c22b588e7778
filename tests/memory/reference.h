// SPDX-License-Identifier: GPL-3.0-or-later
// What a memory manager must do, told by counting: how many granules each owner has. It shares no
// code with the manager.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "granary/planner.h"

namespace granary::test {

class Reference {
  public:
    Reference(const Plan& plan, uint64_t step_bytes) : step_bytes_(step_bytes) {
        set_plan(plan);
        always = plan.fixed + plan.workspace + plan.state;
        above = std::min(plan.loan, plan.expert_range);
        below = plan.expert_range - above;
    }

    uint32_t always = 0;              // fixed weights, workspace and state
    uint32_t below = 0;               // of experts under the gap
    uint32_t above = 0;               // over it, a loan's included
    uint32_t lent = 0;                // of those
    uint32_t released = 0;            // to the driver
    std::map<uint32_t, uint32_t> kv;  // by conversation

    uint32_t sum() const {
        uint32_t sum = always + below + above;
        for (const auto& [id, granules] : kv) sum += granules;
        return sum;
    }
    // K/V may take what the floor and the loan do not need, the smallest one while none runs.
    uint32_t lendable() const { return above + spared(); }
    uint32_t available() const { return left(lendable(), std::max(lent, smallest_loan_)); }
    uint32_t need(uint32_t id, uint64_t cells) const {
        const uint64_t steps = (cells + 1023) / 1024;
        return static_cast<uint32_t>(
            left((steps * step_bytes_ + granule_ - 1) / granule_, uint64_t{kv.at(id)}));
    }

    bool grow(uint32_t id, uint64_t cells) {
        const uint32_t n = need(id, cells);
        if (n > available()) return false;
        take(n);
        kv[id] += n;
        return true;
    }
    void trim(uint32_t id, uint64_t cells) {
        const uint64_t steps = (cells + 1023) / 1024;
        const auto keep = static_cast<uint32_t>((steps * step_bytes_ + granule_ - 1) / granule_);
        const uint32_t n = left(kv[id], keep);
        kv[id] -= n;
        give(n);
    }
    void drop(uint32_t id) {
        trim(id, 0);
        kv.erase(id);
    }
    bool lend(uint32_t n) {
        if (lent || n > lendable()) return false;
        if (n > above) {  // the gap slides down
            below -= n - above;
            above = n;
        }
        lent = n;
        return true;
    }
    bool shrink(uint32_t n) {
        if (n > lent) return false;
        lent = n;
        return true;
    }
    bool set_budget(const Plan& plan) {
        const uint32_t now = sum(), wanted = static_cast<uint32_t>(plan.budget_bytes / granule_);
        if (lent || wanted > now + released) return false;
        if (wanted < now) {
            if (now - wanted > available()) return false;
            take(now - wanted);
            released += now - wanted;
        }
        set_plan(plan);
        if (wanted > now) {
            released -= wanted - now;
            give(wanted - now);
        }
        return true;
    }

  private:
    template <class T>
    static T left(T all, T taken) {
        return all > taken ? all - taken : 0;
    }
    void set_plan(const Plan& plan) {
        granule_ = plan.granule_bytes;
        floor_ = plan.floor;
        planned_loan_ = plan.loan;
        smallest_loan_ = plan.smallest_loan;
    }
    uint32_t spared() const { return left(below, floor_); }
    void take(uint32_t n) {  // cold experts first, then the loan's place
        const uint32_t first = std::min(n, spared());
        below -= first;
        above -= n - first;
    }
    void give(uint32_t n) {  // the loan's place first
        const uint32_t first = std::min(n, left(planned_loan_, above));
        above += first;
        below += n - first;
    }

    uint64_t step_bytes_, granule_ = 1;
    uint32_t floor_ = 0, planned_loan_ = 0, smallest_loan_ = 0;
};

}  // namespace granary::test
