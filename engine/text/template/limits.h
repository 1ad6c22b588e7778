// SPDX-License-Identifier: GPL-3.0-or-later
// What a template may use. Templates come inside model files that nobody vouches for, so every
// resource has an end; the figures are far above what a chat of a million tokens needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace granary::jinja {

struct Limits {
    size_t source_bytes = 256u << 10;     // the template itself; published ones are below 64 KiB
    int statement_depth = 64;             // blocks inside blocks
    int expression_depth = 200;           // brackets inside brackets, operators in one chain
    int call_depth = 150;                 // macros calling macros
    int evaluation_depth = 2000;          // nodes under evaluation at once: bounds the stack
    uint64_t steps = 100'000'000;         // nodes evaluated and items or 64 bytes touched: seconds
    size_t text_bytes = 64u << 20;        // one string, and the output
    size_t live_bytes = size_t{1} << 29;  // all values of one rendering together
    size_t items = 4u << 20;              // one list
    int64_t range_items = 100'000;        // range(): the bound of Jinja's own sandbox
    int value_depth = 100;                // lists inside lists
};

}  // namespace granary::jinja
