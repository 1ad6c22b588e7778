// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/table.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace granary::cli {

std::string fixed(double value, int digits) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return buffer;
}

Table::Table(Row heading, std::vector<bool> right) : right_(std::move(right)) {
    if (!heading.empty()) rows_.push_back(std::move(heading));
}

void Table::print(std::ostream& out) const {
    std::vector<size_t> widths(right_.size(), 0);
    for (const Row& row : rows_)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const Row& row : rows_) {
        out << "  ";
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string space(widths[i] - row[i].size(), ' ');
            if (right_[i]) out << space;
            out << row[i];
            if (i + 1 < row.size()) out << (right_[i] ? "" : space) << "  ";
        }
        out << '\n';
    }
}

}  // namespace granary::cli
