// SPDX-License-Identifier: GPL-3.0-or-later
#include "pdf_writer.h"

#include <cstdio>
#include <map>
#include <sstream>

namespace granary::test {

std::string write_pdf(const std::vector<std::string>& pages, const PdfOptions& options) {
    std::map<size_t, std::string> objects;
    objects[1] = "<</Type/Catalog/Pages 2 0 R>>";
    std::string kids;
    for (size_t i = 0; i < pages.size(); ++i) {
        const size_t page = 10 + 2 * i;
        kids += std::to_string(page) + " 0 R ";
        objects[page] =
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]"
            "/Resources<</Font<</F1 3 0 R>>>>/Contents " +
            std::to_string(page + 1) + " 0 R>>";
        std::istringstream lines(pages[i]);
        std::string stream = "BT /F1 12 Tf 60 780 Td 14 TL\n";
        for (std::string line; std::getline(lines, line);) {
            stream += (line.starts_with('<') ? line : "(" + line + ")") + " Tj T*\n";
        }
        stream += "ET";
        objects[page + 1] =
            "<</Length " + std::to_string(stream.size()) + ">>stream\n" + stream + "\nendstream";
    }
    const std::string count = options.count.empty() ? std::to_string(pages.size()) : options.count;
    objects[2] = "<</Type/Pages/Kids[" + kids + "]/Count " + count + ">>";
    objects[3] = options.font.empty() ? "<</Type/Font/Subtype/Type1/BaseFont/Helvetica"
                                        "/Encoding/WinAnsiEncoding>>"
                                      : options.font;
    objects[4] = "<</Title(" + options.title + ")>>";
    for (size_t i = 0; i < options.objects.size(); ++i) {
        objects[10 + 2 * pages.size() + i] = options.objects[i];
    }

    std::string file = "%PDF-1.7\n";
    const size_t size = objects.rbegin()->first + 1;
    std::string table = "xref\n0 " + std::to_string(size) + "\n0000000000 65535 f \n";
    for (size_t number = 1; number < size; ++number) {
        const auto found = objects.find(number);
        char entry[32];
        std::snprintf(entry, sizeof entry, "%010zu 00000 %c \n",
                      found == objects.end() ? 0 : file.size(), found == objects.end() ? 'f' : 'n');
        table += entry;
        if (found == objects.end()) continue;
        file += std::to_string(number) + " 0 obj\n" + found->second + "\nendobj\n";
    }
    const size_t start = file.size();
    return file + table + "trailer\n<</Size " + std::to_string(size) + "/Root 1 0 R/Info 4 0 R" +
           options.trailer + ">>\nstartxref\n" + std::to_string(start) + "\n%%EOF\n";
}

}  // namespace granary::test
