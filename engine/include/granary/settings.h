// SPDX-License-Identifier: GPL-3.0-or-later
// The settings of a loaded model. One identifier each in CLI, code, script and window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/error.h"
#include "gpu/kv_format.h"
#include "granary/rope.h"

namespace granary {

// A count, or "auto": the planner chooses. never: only for prefill-stream-min.
struct AutoCount {
    enum class Kind : uint8_t { automatic, number, never } kind = Kind::automatic;
    uint32_t number = 0;
    bool operator==(const AutoCount&) const = default;
};

// cache-floor: bytes, or a share of all routed experts' bytes, or the default (one row more than
// top-k). Rounded up to whole rows.
struct CacheFloor {
    enum class Kind : uint8_t { automatic, bytes, percent } kind = Kind::automatic;
    uint64_t bytes = 0;
    double percent = 0;
    bool operator==(const CacheFloor&) const = default;
};

inline constexpr uint32_t kShortestContext = 512, kLongestContext = 1'048'576;

struct Settings {
    uint32_t max_context = 0;     // max-context: tokens; 0: min(trained length, 32,768)
    std::optional<RopeKind> rope_scaling;  // rope-scaling: none: what the file says
    double rope_factor = 0;       // rope-factor: 0: the file's, or what max-context needs
    AutoCount prefill;            // prefill: chunk, 64..16,384
    AutoCount prefill_stream_min; // prefill-stream-min: 1..16,384, auto or never
    std::optional<gpu::KvFormat> kv;  // kv: format of K/V cells; none: chosen by rule
    uint64_t vram_budget = 0;     // vram-budget: bytes; 0: no card, the unified face
    uint64_t vram_reserve = 0;    // vram-reserve: bytes left to everybody else
    CacheFloor cache_floor;       // cache-floor
    std::optional<uint64_t> page_lock;  // page-lock: bytes of host memory; none: what can be spared
    std::optional<uint32_t> cpu_share;  // cpu-share: percent; none: auto
    bool deterministic = true;    // deterministic
    uint32_t threads = 0;         // threads: 0: the cores that this process may use
    std::string device = "auto";  // device: auto, host, cuda:0
    uint64_t granule = 0;         // granule: bytes, card face only; 0: by rule
    bool operator==(const Settings&) const = default;

    // One line each: identifier, the value as text, what it does. For --help, sheets, scripts.
    struct Entry {
        std::string_view name;
        std::string_view help;
    };
    static const std::vector<Entry>& entries();
    // Sets by identifier; the text forms are "auto", "never", "4096", "40MiB", "12%".
    Result<void> set(std::string_view name, std::string_view value);
    std::string get(std::string_view name) const;
};

// "40MiB", "14.5 GiB", "1048576" -> bytes.
Result<uint64_t> parse_bytes(std::string_view text);

}  // namespace granary
