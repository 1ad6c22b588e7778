// SPDX-License-Identifier: GPL-3.0-or-later
// Small PDF files for tests, after ISO 32000-1.
#pragma once

#include <string>
#include <vector>

namespace granary::test {

struct PdfOptions {
    std::string title = {};
    std::string trailer = {};               // more entries of the trailer
    std::string count = {};                 // /Count of the page tree, where it is to lie
    std::string font = {};                  // the font object; empty: Helvetica
    std::vector<std::string> objects = {};  // more objects, numbered from 10 + 2 * pages
};

// One page for each string, a line of text for each of its lines. Text stands between parentheses
// or, where it begins with '<', as it is.
std::string write_pdf(const std::vector<std::string>& pages, const PdfOptions& options = {});

}  // namespace granary::test
