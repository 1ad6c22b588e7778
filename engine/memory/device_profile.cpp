// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/device_profile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/gguf/printable.h"
#include "engine/memory/layout.h"

namespace granary {
namespace {

using nlohmann::ordered_json;

constexpr uint32_t kVersion = 3;  // 2: gather, unpack; 3: cpu, row_bytes_per_code_group
constexpr const char* kVersionKey = "granary_device_profile";
constexpr size_t kMostText = 512;
constexpr uint64_t kMostBytes = uint64_t{1} << 48;

// One figure of a file: where it stands and what it may be.
template <class T>
struct Field {
    const char* key;
    T Rates::*member;
    T least, most;
};
constexpr std::array<Field<double>, 10> kRates{{
    {"link_bytes_per_s", &Rates::link, 1e6, 1e14},
    {"gather_bytes_per_s", &Rates::gather, 1e6, 1e14},
    {"cpu_bytes_per_s", &Rates::cpu, 1e6, 1e14},
    {"memory_bytes_per_s", &Rates::memory, 1e6, 1e15},
    {"weights_bytes_per_s", &Rates::weights, 1e6, 1e15},
    {"unpack_bytes_per_s", &Rates::unpack, 1e6, 1e15},
    {"products_flop_per_s", &Rates::products, 1e6, 1e18},
    {"attention_flop_per_s", &Rates::attention, 1e6, 1e18},
    {"cells_values_per_s", &Rates::cells, 1e6, 1e16},
    {"layer_s", &Rates::layer, 0, 1},
}};

// Reads the keys of one object; the first thing that is wrong stays as the error.
class ObjectReader {
  public:
    ObjectReader(const ordered_json& object, std::string place)
        : object_(object), place_(std::move(place)) {
        if (!object.is_object()) wrong("", "is no object", "an object");
    }

    uint64_t whole(const char* key, uint64_t least, uint64_t most) {
        const ordered_json* value = take(key);
        const std::string range = std::to_string(least) + " to " + std::to_string(most);
        if (!value) return least;
        if (!value->is_number_unsigned() || value->get<uint64_t>() < least ||
            value->get<uint64_t>() > most) {
            wrong(key, "is " + shown(*value), "a whole number, " + range);
            return least;
        }
        return value->get<uint64_t>();
    }
    double real(const char* key, double least, double most) {
        const ordered_json* value = take(key);
        if (!value) return least;
        const double number = value->is_number() ? value->get<double>() : NAN;
        if (!(number >= least && number <= most)) {
            const ordered_json range = {least, most};
            wrong(key, "is " + shown(*value), "a number in " + range.dump());
            return least;
        }
        return number;
    }
    bool truth(const char* key) {
        const ordered_json* value = take(key);
        if (value && !value->is_boolean()) wrong(key, "is " + shown(*value), "true or false");
        return value && value->is_boolean() && value->get<bool>();
    }
    std::string text(const char* key, size_t most) {
        const ordered_json* value = take(key);
        if (!value) return {};
        if (!value->is_string() || value->get_ref<const std::string&>().size() > most) {
            wrong(key, "is " + shown(*value),
                  "a text of at most " + std::to_string(most) + " bytes");
            return {};
        }
        return gguf::printable(value->get_ref<const std::string&>(), most);
    }
    const ordered_json& object(const char* key) {
        static const ordered_json none = ordered_json::object();
        const ordered_json* value = take(key);
        return value ? *value : none;
    }
    // All keys that were not read are too many.
    void finish() {
        if (!object_.is_object() || error_) return;
        for (const auto& [key, value] : object_.items())
            if (std::find(read_.begin(), read_.end(), key) == read_.end()) {
                wrong(gguf::printable(key, 64).c_str(), "is not known", "left out");
                return;
            }
    }
    void wrong(const std::string& key, const std::string& what, const std::string& expected) {
        if (error_) return;
        const std::string dot = place_.empty() || key.empty() ? "" : ".";
        error_ = Error{ErrorKind::invalid_file, "this is no device profile that can be used",
                       place_ + dot + key + " " + what, "It must be " + expected};
    }
    const std::optional<Error>& error() const { return error_; }

  private:
    const ordered_json* take(const char* key) {
        read_.push_back(key);
        if (!object_.is_object()) return nullptr;
        const auto found = object_.find(key);
        if (found != object_.end()) return &*found;
        wrong(key, "is missing", "there");
        return nullptr;
    }
    static std::string shown(const ordered_json& value) {
        if (value.is_structured()) return value.is_array() ? "a list" : "an object";
        return gguf::printable(value.dump(-1, ' ', true, ordered_json::error_handler_t::replace),
                               64);
    }

    const ordered_json& object_;
    std::string place_;
    std::vector<std::string> read_;
    std::optional<Error> error_;
};

}  // namespace

Result<DeviceProfile> DeviceProfile::parse(std::string_view text) {
    const ordered_json json = ordered_json::parse(text, nullptr, false);
    if (json.is_discarded())
        return fail(ErrorKind::invalid_file, "this is no device profile", "it is not JSON");
    DeviceProfile profile;
    ObjectReader top(json, "");
    top.whole(kVersionKey, kVersion, kVersion);
    profile.name = top.text("name", kMostText);
    profile.origin = top.text("origin", kMostText);
    profile.estimate = top.truth("estimate");
    profile.device = top.text("device", 16);
    profile.total_bytes = top.whole("total_bytes", uint64_t{1} << 20, kMostBytes);
    profile.free_bytes = top.whole("free_bytes", 0, kMostBytes);
    profile.granule_bytes = top.whole("granule_bytes", 0, uint64_t{1} << 30);
    profile.threads = static_cast<uint32_t>(top.whole("threads", 0, 4096));

    ObjectReader buffers(top.object("buffers"), "buffers");
    const auto bytes = [&](const char* key) { return buffers.whole(key, 0, uint64_t{1} << 32); };
    profile.buffers.code_group = static_cast<uint32_t>(buffers.whole("code_group", 1, 4096));
    profile.buffers.code_group_bytes =
        static_cast<uint32_t>(buffers.whole("code_group_bytes", 1, 65536));
    profile.buffers.scratch_bytes = bytes("scratch_bytes");
    profile.buffers.scratch_bytes_per_value = buffers.whole("scratch_bytes_per_value", 0, 1 << 20);
    profile.buffers.cut_bytes = buffers.whole("cut_bytes", 0, 1 << 24);
    profile.buffers.cut_bytes_per_value = buffers.whole("cut_bytes_per_value", 0, 1 << 16);
    const auto small = [&](const char* key, uint64_t least, uint64_t most) {
        return static_cast<uint32_t>(buffers.whole(key, least, most));
    };
    profile.buffers.prompt_bytes_per_kv_value = small("prompt_bytes_per_kv_value", 0, 1 << 20);
    profile.buffers.prompt_bytes_per_expert = small("prompt_bytes_per_expert", 0, 1 << 20);
    profile.buffers.row_bytes_per_head = small("row_bytes_per_head", 0, 1 << 16);
    profile.buffers.row_bytes_per_expert = small("row_bytes_per_expert", 0, 1 << 16);
    profile.buffers.row_bytes_per_code_group = small("row_bytes_per_code_group", 0, 65536);
    profile.buffers.expert_out_bytes = small("expert_out_bytes", 1, 4);
    profile.buffers.hidden_value_bytes = small("hidden_value_bytes", 0, 4);
    profile.buffers.ring_wave = small("ring_wave", 1, 256);
    profile.buffers.ring_waves = small("ring_waves", 1, 16);

    ObjectReader rates(top.object("rates"), "rates");
    for (const auto& field : kRates)
        profile.rates.*field.member = rates.real(field.key, field.least, field.most);

    const bool host = profile.device == "host";
    if (!host && profile.device != "cuda" && profile.device != "hip")
        top.wrong("device", "is '" + profile.device + "'", "host, cuda or hip");
    if (host != (profile.threads > 0))
        top.wrong("threads", "is " + std::to_string(profile.threads),
                  "at least 1 for the host and 0 for others");
    if (!(host && profile.granule_bytes == 0) &&
        (!std::has_single_bit(profile.granule_bytes) || profile.granule_bytes < 65536))
        top.wrong("granule_bytes", "is " + std::to_string(profile.granule_bytes),
                  "a power of two from 65536 on (0 for the host)");
    if (profile.free_bytes > profile.total_bytes)
        top.wrong("free_bytes", "is " + std::to_string(profile.free_bytes), "total_bytes at most");
    buffers.finish();
    rates.finish();
    top.finish();
    for (const ObjectReader* reader : {&top, &buffers, &rates})
        if (reader->error()) return tl::unexpected(*reader->error());
    return profile;
}

std::string DeviceProfile::json() const {
    ordered_json json;
    json[kVersionKey] = kVersion;
    json["name"] = name;
    json["origin"] = origin;
    json["estimate"] = estimate;
    json["device"] = device;
    json["total_bytes"] = total_bytes;
    json["free_bytes"] = free_bytes;
    json["granule_bytes"] = granule_bytes;
    json["threads"] = threads;
    json["buffers"] = {{"code_group", buffers.code_group},
                       {"code_group_bytes", buffers.code_group_bytes},
                       {"scratch_bytes", buffers.scratch_bytes},
                       {"scratch_bytes_per_value", buffers.scratch_bytes_per_value},
                       {"cut_bytes", buffers.cut_bytes},
                       {"cut_bytes_per_value", buffers.cut_bytes_per_value},
                       {"prompt_bytes_per_kv_value", buffers.prompt_bytes_per_kv_value},
                       {"prompt_bytes_per_expert", buffers.prompt_bytes_per_expert},
                       {"row_bytes_per_head", buffers.row_bytes_per_head},
                       {"row_bytes_per_expert", buffers.row_bytes_per_expert},
                       {"row_bytes_per_code_group", buffers.row_bytes_per_code_group},
                       {"expert_out_bytes", buffers.expert_out_bytes},
                       {"hidden_value_bytes", buffers.hidden_value_bytes},
                       {"ring_wave", buffers.ring_wave},
                       {"ring_waves", buffers.ring_waves}};
    for (const auto& field : kRates) json["rates"][field.key] = rates.*field.member;
    return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

DeviceProfile DeviceProfile::of(gpu::Device& device, const Rates& rates) {
    gpu::DeviceInfo info = device.info();
    const gpu::Kernels& kernels = device.kernels();
    DeviceProfile profile;
    if (info.id == "host") {  // the machine, not the card that it plays
        gpu::HostDeviceOptions same;
        same.threads = info.threads;
        if (const auto machine = gpu::host_device_info(same)) info = *machine;
    }
    profile.name = info.name;
    profile.origin = "measured";
    profile.estimate = false;
    profile.device = info.id.substr(0, info.id.find(':'));
    profile.total_bytes = info.total_bytes;
    // What this program holds now is free again before the next one loads.
    profile.free_bytes = info.free_bytes + (info.id == "host" ? 0 : device.driver_bytes());
    const bool host = profile.device == "host";
    profile.granule_bytes = host ? 0 : info.granule_bytes;
    profile.threads = host ? info.threads : 0;
    profile.rates = rates;

    Buffers& buffers = profile.buffers;
    constexpr uint32_t kGroups = 1024;
    buffers.code_group = 32;
    buffers.code_group_bytes =
        static_cast<uint32_t>(divide_up(kernels.code_bytes(kGroups * buffers.code_group), kGroups));
    // Both parts of scratch are straight lines over the head size: two sizes give them.
    const auto line = [](uint64_t at_64, uint64_t at_128, uint64_t& constant, uint64_t& slope) {
        slope = divide_up(at_128 - at_64, 64);
        constant = at_64 - std::min(at_64, 64 * slope);
    };
    const auto scratch = [&](uint32_t head_dim, uint32_t cuts) {
        gpu::AttentionShape shape;
        shape.heads = shape.kv_heads = 1;
        shape.head_dim = head_dim;
        return kernels.scratch_bytes(shape, cuts * gpu::kDecodeCut);
    };
    const auto cut = [&](uint32_t dim) { return scratch(dim, 2) - scratch(dim, 1); };
    const auto base = [&](uint32_t dim) {
        return divide_up(scratch(dim, 1) - cut(dim), std::max(profile.threads, 1u));
    };
    line(cut(64), cut(128), buffers.cut_bytes, buffers.cut_bytes_per_value);
    line(base(64), base(128), buffers.scratch_bytes, buffers.scratch_bytes_per_value);

    // Much of one and little of the others shows each part of a prompt's scratch.
    constexpr uint32_t kMany = 64, kDim = 128;
    const auto prompt = [&](uint32_t heads, uint32_t experts, uint32_t hidden, uint32_t rows) {
        gpu::AttentionShape shape;
        shape.heads = shape.kv_heads = heads;
        shape.head_dim = kDim;
        return kernels.prompt_scratch_bytes(shape, experts, 1, hidden, rows);
    };
    const auto row = [&](uint32_t heads, uint32_t experts, uint32_t hidden = 0) {
        return prompt(heads, experts, hidden, 2) - prompt(heads, experts, hidden, 1);
    };
    const auto constant = [&](uint32_t heads, uint32_t experts) {
        return prompt(heads, experts, 0, 1) - row(heads, experts);
    };
    buffers.row_bytes_per_head = divide_up(row(kMany, 1), kMany);
    buffers.row_bytes_per_expert = divide_up(row(1, kMany * kMany), kMany * kMany);
    const uint32_t wide = kMany * kMany * buffers.code_group;
    buffers.row_bytes_per_code_group =
        static_cast<uint32_t>(divide_up(row(1, 1, 2 * wide) - row(1, 1, wide), kMany * kMany));
    buffers.prompt_bytes_per_kv_value = divide_up(constant(kMany, 1), kMany * kDim);
    buffers.prompt_bytes_per_expert = divide_up(constant(1, kMany * kMany), kMany * kMany);
    buffers.expert_out_bytes = static_cast<uint32_t>(kernels.expert_out_bytes());
    buffers.hidden_value_bytes = kernels.keeps_hidden_values() ? sizeof(float) : 0;
    buffers.ring_wave = kernels.experts_at_once();
    return profile;
}

DeviceFacts DeviceProfile::facts(const ModelFacts& model) const {
    const auto codes = [&](uint64_t values) {
        return round_up(divide_up(values, buffers.code_group) * buffers.code_group_bytes, 64);
    };
    const gpu::AttentionShape& attention = model.attention;
    DeviceFacts facts;
    facts.host = device == "host";
    facts.face = facts.host ? gpu::Face::unified : gpu::Face::card;
    facts.granule_bytes = granule_bytes;
    facts.free_bytes = free_bytes;
    facts.code_bytes_hidden = codes(model.hidden);
    facts.code_bytes_attention = codes(uint64_t{attention.heads} * attention.head_dim);
    facts.code_bytes_ffn = codes(model.expert_ffn);
    if (model.delta_layers) facts.code_bytes_delta = codes(model.delta.width());
    if (model.shared_ffn) facts.code_bytes_shared = codes(model.shared_ffn);
    facts.threads = facts.threads_unless_told = threads;
    facts.scratch_base =
        (buffers.scratch_bytes + buffers.scratch_bytes_per_value * attention.head_dim) *
        std::max(threads, 1u);
    facts.scratch_per_cut =
        (buffers.cut_bytes + buffers.cut_bytes_per_value * attention.head_dim) * attention.heads;
    const uint64_t kv_values = uint64_t{attention.kv_heads} * attention.head_dim;
    facts.prompt_scratch_base = std::max(kv_values * buffers.prompt_bytes_per_kv_value,
                                         model.experts * buffers.prompt_bytes_per_expert);
    const uint64_t code_groups = divide_up(model.hidden, buffers.code_group);
    facts.prompt_scratch_per_row =
        std::max(attention.heads * buffers.row_bytes_per_head,
                 model.experts * buffers.row_bytes_per_expert +
                     round_up(code_groups * buffers.row_bytes_per_code_group, 16));
    facts.expert_out_bytes = buffers.expert_out_bytes;
    facts.hidden_value_bytes = buffers.hidden_value_bytes;
    facts.ring_wave = buffers.ring_wave;
    facts.shares_with_cpu = !facts.host;
    facts.ring_waves = buffers.ring_waves;
    facts.rates = rates;
    return facts;
}

}  // namespace granary
