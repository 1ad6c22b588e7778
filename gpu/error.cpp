// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/error.h"

#include <cstdio>

namespace granary {

std::string Error::message() const {
    std::string text = what;
    if (!detail.empty()) text += ": " + detail;
    if (!advice.empty()) text += ". " + advice;
    return text;
}

std::string grouped(unsigned long long n) {
    std::string digits = std::to_string(n);
    for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3)
        digits.insert(static_cast<size_t>(i), 1, ',');
    return digits;
}

std::string format_bytes(unsigned long long bytes) {
    static const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return std::to_string(bytes) + " bytes";
    double value = static_cast<double>(bytes) / 1024.0;
    int unit = 0;
    while (value >= 1023.95 && unit < 3) {
        value /= 1024.0;
        ++unit;
    }
    char buffer[32];
    const bool whole = value == static_cast<double>(static_cast<long long>(value));
    std::snprintf(buffer, sizeof buffer, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

}  // namespace granary
