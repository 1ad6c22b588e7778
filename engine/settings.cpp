// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/settings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace granary {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kTiB = 1024 * kGiB;
// Far above any machine, far below overflow when such a figure is rounded up to granules.
constexpr uint64_t kMostBytes = 1024 * 1024 * kTiB;

struct Unit {
    std::string_view name;  // lower case
    uint64_t bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kib", kKiB},
    {"mib", kMiB},
    {"gib", kGiB},
    {"tib", kTiB},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
};

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

// What a person typed, cut to a length that fits an error line.
std::string quoted(std::string_view text) {
    constexpr size_t kMost = 40;
    return "'" + std::string(text.substr(0, kMost)) + (text.size() > kMost ? "...'" : "'");
}

tl::unexpected<Error> bad_value(std::string_view name, std::string_view value,
                                std::string_view accepted) {
    return fail(ErrorKind::invalid_argument, "This value is not possible for " + std::string(name),
                quoted(value), "It takes " + std::string(accepted));
}

// The whole of `text` as a decimal number, digits only.
std::optional<uint64_t> parse_count(std::string_view text) {
    uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end) return std::nullopt;
    return number;
}

std::optional<uint32_t> parse_count(std::string_view text, uint32_t least, uint32_t most) {
    const std::optional<uint64_t> number = parse_count(text);
    if (!number || *number < least || *number > most) return std::nullopt;
    return static_cast<uint32_t>(*number);
}

// Exact: in the largest unit that leaves no rest.
std::string bytes_text(uint64_t bytes) {
    constexpr std::array<Unit, 4> units{
        {{"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}}};
    for (const Unit& unit : units)
        if (bytes != 0 && bytes % unit.bytes == 0)
            return std::to_string(bytes / unit.bytes) + std::string(unit.name);
    return std::to_string(bytes);
}

std::string real_text(double number) {
    std::array<char, 32> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
    return std::string(buffer.data(), end);
}

std::string count_text(uint32_t number) {
    return number == 0 ? "auto" : std::to_string(number);
}

std::string count_text(const AutoCount& count) {
    switch (count.kind) {
        case AutoCount::Kind::number:
            return std::to_string(count.number);
        case AutoCount::Kind::never:
            return "never";
        case AutoCount::Kind::automatic:
            break;
    }
    return "auto";
}

// "auto" or 0 is 0, else a number in [least, most].
Result<void> set_count(uint32_t& target, std::string_view name, std::string_view value,
                       uint32_t least, uint32_t most, std::string_view accepted) {
    const bool automatic = value == "auto" || value == "0";
    const std::optional<uint32_t> number = parse_count(value, least, most);
    if (!automatic && !number) return bad_value(name, value, accepted);
    target = automatic ? 0 : *number;
    return {};
}

Result<void> set_bytes(uint64_t& target, std::string_view name, std::string_view value,
                       std::string_view accepted) {
    const Result<uint64_t> bytes = parse_bytes(value);
    if (!bytes) return bad_value(name, value, accepted);
    target = *bytes;
    return {};
}

Result<void> set_max_context(Settings& settings, std::string_view value) {
    return set_count(settings.max_context, "max-context", value, kShortestContext, kLongestContext,
                     "auto or 512 to 1048576 tokens");
}

Result<void> set_prefill(Settings& settings, std::string_view value) {
    uint32_t number = 0;
    if (value == "0") return bad_value("prefill", value, "auto or 64 to 16384 tokens");
    if (auto set = set_count(number, "prefill", value, 64, 16'384, "auto or 64 to 16384 tokens");
        !set)
        return set;
    settings.prefill = {number == 0 ? AutoCount::Kind::automatic : AutoCount::Kind::number, number};
    return {};
}

Result<void> set_prefill_stream_min(Settings& settings, std::string_view value) {
    if (value == "auto") {
        settings.prefill_stream_min = {};
    } else if (value == "never") {
        settings.prefill_stream_min = {AutoCount::Kind::never, 0};
    } else if (const auto number = parse_count(value, 1, 16'384)) {
        settings.prefill_stream_min = {AutoCount::Kind::number, *number};
    } else {
        return bad_value("prefill-stream-min", value, "auto, never or 1 to 16384 tokens");
    }
    return {};
}

Result<void> set_kv(Settings& settings, std::string_view value) {
    constexpr gpu::KvFormat formats[] = {gpu::KvFormat::f16, gpu::KvFormat::int8,
                                         gpu::KvFormat::k8v4, gpu::KvFormat::q4};
    if (value == "auto") {
        settings.kv.reset();
        return {};
    }
    for (const gpu::KvFormat format : formats) {
        if (value != gpu::kv_format_name(format)) continue;
        settings.kv = format;
        return {};
    }
    return bad_value("kv", value, "auto, f16, int8, k8v4 or q4");
}

Result<void> set_vram_budget(Settings& settings, std::string_view value) {
    return set_bytes(settings.vram_budget, "vram-budget", value,
                     "0 or a size such as 40MiB or 14.5GiB");
}

Result<void> set_vram_reserve(Settings& settings, std::string_view value) {
    return set_bytes(settings.vram_reserve, "vram-reserve", value,
                     "0 or a size such as 512MiB or 1GiB");
}

Result<void> set_cache_floor(Settings& settings, std::string_view value) {
    constexpr std::string_view accepted = "auto, a size such as 12MiB, or a share such as 10%";
    if (value == "auto") {
        settings.cache_floor = {};
        return {};
    }
    if (!value.ends_with('%')) {
        uint64_t bytes = 0;
        if (auto set = set_bytes(bytes, "cache-floor", value, accepted); !set) return set;
        settings.cache_floor = {CacheFloor::Kind::bytes, bytes, 0};
        return {};
    }
    const std::string_view share = trimmed(value.substr(0, value.size() - 1));
    double percent = 0;
    const char* const end = share.data() + share.size();
    const auto [stop, error] =
        std::from_chars(share.data(), end, percent, std::chars_format::fixed);
    // Written so that a NaN fails too.
    if (error != std::errc() || stop != end || !(percent >= 0 && percent <= 100) ||
        std::signbit(percent))
        return bad_value("cache-floor", value, accepted);
    settings.cache_floor = {CacheFloor::Kind::percent, 0, percent};
    return {};
}

Result<void> set_page_lock(Settings& settings, std::string_view value) {
    if (value == "auto") {
        settings.page_lock.reset();
        return {};
    }
    uint64_t bytes = 0;
    if (auto r = set_bytes(bytes, "page-lock", value, "auto, 0 or a size such as 24GiB"); !r)
        return r;
    settings.page_lock = bytes;
    return {};
}

Result<void> set_cpu_share(Settings& settings, std::string_view value) {
    if (value == "auto") {
        settings.cpu_share.reset();
        return {};
    }
    const bool percent = value.ends_with('%');
    const auto number = parse_count(trimmed(value.substr(0, value.size() - percent)), 0, 100);
    if (!number) return bad_value("cpu-share", value, "auto or a share from 0% to 100%");
    settings.cpu_share = *number;
    return {};
}

Result<void> set_deterministic(Settings& settings, std::string_view value) {
    if (value != "on" && value != "off") return bad_value("deterministic", value, "on or off");
    settings.deterministic = value == "on";
    return {};
}

Result<void> set_threads(Settings& settings, std::string_view value) {
    return set_count(settings.threads, "threads", value, 1, 256, "auto or 1 to 256");
}

Result<void> set_device(Settings& settings, std::string_view value) {
    constexpr std::string_view kCuda = "cuda:";
    const bool gpu = value.starts_with(kCuda) && parse_count(value.substr(kCuda.size()), 0, 63);
    if (value != "auto" && value != "host" && !gpu)
        return bad_value("device", value, "auto, host or a GPU by its number, such as cuda:0");
    settings.device = value;
    return {};
}

Result<void> set_granule(Settings& settings, std::string_view value) {
    constexpr std::string_view accepted = "auto or a power of two from 64KiB to 64MiB";
    if (value == "auto") {
        settings.granule = 0;
        return {};
    }
    uint64_t bytes = 0;
    if (auto set = set_bytes(bytes, "granule", value, accepted); !set) return set;
    if (!std::has_single_bit(bytes) || bytes < 64 * kKiB || bytes > 64 * kMiB)
        return bad_value("granule", value, accepted);
    settings.granule = bytes;
    return {};
}

std::string cache_floor_text(const CacheFloor& floor) {
    switch (floor.kind) {
        case CacheFloor::Kind::bytes:
            return bytes_text(floor.bytes);
        case CacheFloor::Kind::percent:
            return real_text(floor.percent) + "%";
        case CacheFloor::Kind::automatic:
            break;
    }
    return "auto";
}

Result<void> set_rope_scaling(Settings& settings, std::string_view value) {
    if (value == "auto") {
        settings.rope_scaling.reset();
        return {};
    }
    for (const RopeKind kind : {RopeKind::none, RopeKind::linear, RopeKind::yarn}) {
        if (value != rope_kind_name(kind)) continue;
        settings.rope_scaling = kind;
        return {};
    }
    return bad_value("rope-scaling", value, "auto, none, linear or yarn");
}

Result<void> set_rope_factor(Settings& settings, std::string_view value) {
    double factor = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, factor, std::chars_format::fixed);
    // Written so that a NaN fails too.
    const bool possible =
        error == std::errc() && stop == end && factor >= 1 && factor <= kLargestRopeFactor;
    if (value != "auto" && !possible)
        return bad_value("rope-factor", value, "auto or a number from 1 to 4096");
    settings.rope_factor = value == "auto" ? 0 : factor;
    return {};
}

struct Setting {
    Settings::Entry entry;
    Result<void> (*set)(Settings&, std::string_view);
    std::string (*get)(const Settings&);
};

const std::array<Setting, 15>& table() {
    static const std::array<Setting, 15> settings{{
        {{"max-context",
          "Longest conversation in tokens, question and answer together (auto: what the model was "
          "trained for, at most 32768)."},
         set_max_context,
         [](const Settings& s) { return count_text(s.max_context); }},
        {{"rope-scaling",
          "How positions are stretched for contexts longer than what the model was trained for: "
          "none, linear or yarn (auto: what the model file says)."},
         set_rope_scaling,
         [](const Settings& s) {
             return std::string(s.rope_scaling ? rope_kind_name(*s.rope_scaling) : "auto");
         }},
        {{"rope-factor",
          "By how much positions are stretched, where they are (auto: what the model file says, or "
          "the whole number that max-context needs)."},
         set_rope_factor,
         [](const Settings& s) {
             return s.rope_factor == 0 ? std::string("auto") : real_text(s.rope_factor);
         }},
        {{"prefill",
          "Tokens of a prompt that are read in one step; larger steps read faster and borrow more "
          "memory (auto: chosen for this model and budget)."},
         set_prefill,
         [](const Settings& s) { return count_text(s.prefill); }},
        {{"prefill-stream-min",
          "Reading steps of at least this many tokens copy all experts in order, shorter ones only "
          "those that are asked for."},
         set_prefill_stream_min,
         [](const Settings& s) { return count_text(s.prefill_stream_min); }},
        {{"kv",
          "Format of a conversation's keys and values: f16, int8 (half the memory), k8v4 (values "
          "in "
          "4 bits) or q4 (both in 4 bits, costs answers; auto: f16 for short contexts, smaller "
          "ones for long)."},
         set_kv,
         [](const Settings& s) { return std::string(s.kv ? gpu::kv_format_name(*s.kv) : "auto"); }},
        {{"vram-budget",
          "Device memory that this program may hold (0: no card, everything stays in main "
          "memory)."},
         set_vram_budget,
         [](const Settings& s) { return bytes_text(s.vram_budget); }},
        {{"vram-reserve", "Device memory that is always left to other programs."},
         set_vram_reserve,
         [](const Settings& s) { return bytes_text(s.vram_reserve); }},
        {{"cache-floor",
          "Memory that experts keep when the context grows, as a size or a share of all experts, "
          "rounded up to whole rows (auto: one row more than a token uses)."},
         set_cache_floor,
         [](const Settings& s) { return cache_floor_text(s.cache_floor); }},
        {{"page-lock",
          "Main memory that is locked for a GPU to copy weights from (auto: what is free but for "
          "15 % "
          "of all, 4GiB at least). Experts beyond it are copied twice, and slower."},
         set_page_lock,
         [](const Settings& s) {
             return s.page_lock ? bytes_text(*s.page_lock) : std::string("auto");
         }},
        {{"cpu-share",
          "Share of the experts missing on the card that the CPU computes in main memory instead "
          "of their being copied: for answers beside a GPU while deterministic is off, and for "
          "short reading steps on the emulated card (auto: none while deterministic is on, else "
          "what is fastest)."},
         set_cpu_share,
         [](const Settings& s) {
             return s.cpu_share ? std::to_string(*s.cpu_share) + "%" : std::string("auto");
         }},
        {{"deterministic",
          "Same question, same answer, whatever memory did: on or off. Off lets the CPU take a "
          "share of the work."},
         set_deterministic,
         [](const Settings& s) { return std::string(s.deterministic ? "on" : "off"); }},
        {{"threads", "Threads that compute (auto: the cores that this program may use)."},
         set_threads,
         [](const Settings& s) { return count_text(s.threads); }},
        {{"device",
          "What computes: host (the CPU) or a GPU by its number, such as cuda:0 (auto: the first "
          "GPU "
          "that has room, else the CPU)."},
         set_device,
         [](const Settings& s) { return s.device; }},
        {{"granule",
          "Unit in which memory changes hands on an emulated card (auto: 64KiB for budgets under "
          "1GiB, else 2MiB)."},
         set_granule,
         [](const Settings& s) { return s.granule == 0 ? "auto" : bytes_text(s.granule); }},
    }};
    return settings;
}

const Setting* find(std::string_view name) {
    const auto& settings = table();
    const auto found = std::find_if(settings.begin(), settings.end(),
                                    [&](const Setting& s) { return s.entry.name == name; });
    return found == settings.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<Settings::Entry>& Settings::entries() {
    static const std::vector<Entry> entries = [] {
        std::vector<Entry> list;
        for (const Setting& setting : table()) list.push_back(setting.entry);
        return list;
    }();
    return entries;
}

Result<void> Settings::set(std::string_view name, std::string_view value) {
    if (const Setting* setting = find(name)) return setting->set(*this, trimmed(value));
    std::string known;
    for (const Entry& entry : entries())
        known += (known.empty() ? "" : ", ") + std::string(entry.name);
    return fail(ErrorKind::invalid_argument, "There is no setting of this name", quoted(name),
                "The settings are " + known);
}

std::string Settings::get(std::string_view name) const {
    const Setting* setting = find(name);
    return setting ? setting->get(*this) : std::string();
}

Result<uint64_t> parse_bytes(std::string_view text) {
    const auto bad = [&](std::string_view why) {
        return fail(ErrorKind::invalid_argument, "This is not a size: " + std::string(why),
                    quoted(text), "Write it like 1048576, 512KiB, 40MiB or 14.5GiB");
    };
    const std::string_view all = trimmed(text);
    const size_t unit_at = std::min(all.find_first_not_of("0123456789."), all.size());
    const std::string_view number = all.substr(0, unit_at);
    const std::string unit_name = lower(trimmed(all.substr(unit_at)));
    const auto* unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                    [&](const Unit& u) { return u.name == unit_name; });
    if (number.empty()) return bad("it does not begin with a number");
    if (unit == std::end(kUnits)) return bad("its unit is unknown");

    const size_t point = std::min(number.find('.'), number.size());
    const std::string_view fraction = number.substr(std::min(point + 1, number.size()));
    const std::optional<uint64_t> whole = parse_count(number.substr(0, point));
    if (!whole) return bad("its number cannot be read");
    if (*whole > kMostBytes / unit->bytes) return bad("it is larger than any memory");
    uint64_t bytes = *whole * unit->bytes;
    if (point < number.size()) {
        // Six decimals of a TiB still fit 64 bits, so integers give the exact floor.
        const std::optional<uint64_t> decimals = parse_count(fraction);
        if (!decimals || fraction.size() > 6) return bad("it takes one to six decimals");
        if (unit->bytes == 1) return bad("a byte cannot be divided");
        uint64_t scale = 1;
        for (size_t i = 0; i < fraction.size(); ++i) scale *= 10;
        bytes += *decimals * unit->bytes / scale;
    }
    if (bytes > kMostBytes) return bad("it is larger than any memory");
    return bytes;
}

}  // namespace granary
