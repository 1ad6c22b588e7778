// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "gpu/small_file.h"

namespace granary::gpu::host {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> number(std::string_view text) {
    uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && stop != text.data() ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> number_in(const std::string& path) {
    return number(trimmed(read_small_file(path)));
}

// The number after `key` at the start of a line, as in /proc/meminfo and memory.stat.
std::optional<uint64_t> field(const std::string& text, const std::string& key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(key)) return number(trimmed(line.substr(key.size())));
    return std::nullopt;
}

// The folders of this process's control group and of all groups around it. `controller` is that
// of version 1; empty: version 2. A container may see another tree than its path names, so
// folders that are absent are simply passed over by those who read in them.
std::vector<std::string> groups(const std::string& root, const std::string& controller) {
    std::istringstream lines(read_small_file(root + "/proc/self/cgroup"));
    std::vector<std::string> folders;
    for (std::string line; std::getline(lines, line);) {  // "4:memory:/a/b", "0::/a/b"
        const size_t first = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        if (controllers.find("," + controller + ",") == std::string::npos) continue;
        const std::string top =
            root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
        std::string path = line.substr(second + 1);
        while (!path.empty() && path != "/") {
            folders.push_back(top + path);
            path.erase(path.find_last_of('/'));
        }
        folders.push_back(top);
        break;
    }
    return folders;
}

// Cores' worth of CPU time that the groups grant, rounded up.
uint64_t cpu_quota(const std::string& root) {
    uint64_t cores = kUnlimited;
    const auto limit = [&](std::optional<uint64_t> quota, std::optional<uint64_t> period) {
        if (quota && period && *quota > 0 && *period > 0)
            cores = std::min(cores, (*quota - 1) / *period + 1);
    };
    for (const std::string& folder : groups(root, "")) {
        std::istringstream words(
            read_small_file(folder + "/cpu.max"));  // "200000 100000", "max .."
        std::string quota, period;
        words >> quota >> period;
        limit(number(quota), number(period));
    }
    for (const std::string& folder : groups(root, "cpu"))
        limit(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));
    return cores;
}

void limit_by_group(MachineMemory& memory, std::optional<uint64_t> limit,
                    std::optional<uint64_t> used, std::optional<uint64_t> reclaimable) {
    if (!limit) return;
    // Files that nobody reads just now are counted as used but given up on demand.
    const uint64_t needed = used.value_or(0) - std::min(used.value_or(0), reclaimable.value_or(0));
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.free_bytes = std::min(memory.free_bytes, *limit - std::min(*limit, needed));
}

}  // namespace

unsigned usable_cores(const std::string& root) {
    cpu_set_t sets[8];  // 8,192 cores
    uint64_t cores = std::thread::hardware_concurrency();
    if (sched_getaffinity(0, sizeof sets, sets) == 0)
        cores = static_cast<uint64_t>(CPU_COUNT_S(sizeof sets, sets));
    return static_cast<unsigned>(std::max<uint64_t>(1, std::min(cores, cpu_quota(root))));
}

MachineMemory machine_memory(const std::string& root) {
    const std::string meminfo = read_small_file(root + "/proc/meminfo");
    MachineMemory memory;
    memory.total_bytes = field(meminfo, "MemTotal:").value_or(0) * 1024;
    memory.free_bytes = field(meminfo, "MemAvailable:").value_or(0) * 1024;
    for (const std::string& folder : groups(root, ""))
        limit_by_group(memory, number_in(folder + "/memory.max"),
                       number_in(folder + "/memory.current"),
                       field(read_small_file(folder + "/memory.stat"), "inactive_file "));
    for (const std::string& folder : groups(root, "memory"))
        limit_by_group(memory, number_in(folder + "/memory.limit_in_bytes"),
                       number_in(folder + "/memory.usage_in_bytes"),
                       field(read_small_file(folder + "/memory.stat"), "total_inactive_file "));
    return memory;
}

std::string cpu_name(const std::string& root) {
    std::istringstream lines(read_small_file(root + "/proc/cpuinfo"));
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("model name")) continue;
        std::string name = line.substr(std::min(line.find(':'), line.size() - 1) + 1);
        for (const char* mark : {"(R)", "(TM)", "(r)", "(tm)"})
            for (size_t at; (at = name.find(mark)) != std::string::npos;)
                name.erase(at, std::string_view(mark).size());
        std::istringstream words(name);
        std::string result;
        for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
        if (!result.empty()) return result;
    }
    return "CPU";
}

std::string vector_instructions() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return "AVX-512";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
    return "SSE2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "no vectors";
#endif
}

}  // namespace granary::gpu::host
