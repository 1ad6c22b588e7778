// SPDX-License-Identifier: GPL-3.0-or-later
// Figures as people read them: columns, decimals.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace granary::cli {

std::string fixed(double value, int digits);  // "12.5"

// Columns two spaces apart, indented by two; those in `right` are right-aligned. A first row that
// is given is the heading.
class Table {
  public:
    using Row = std::vector<std::string>;
    Table(Row heading, std::vector<bool> right);
    void add(Row row) { rows_.push_back(std::move(row)); }
    void print(std::ostream& out) const;

  private:
    std::vector<Row> rows_;
    std::vector<bool> right_;
};

}  // namespace granary::cli
