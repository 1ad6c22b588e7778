// SPDX-License-Identifier: GPL-3.0-or-later
// granary-extract FILE: the text of a document, read by a process that can do little else.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/extract/confine.h"
#include "engine/extract/input_file.h"
#include "engine/extract/pdf.h"
#include "engine/extract/text_file.h"

namespace {

using namespace granary::extract;
using nlohmann::ordered_json;

constexpr int kRefusedExit = 2;
constexpr int kUsageExit = 64;

constexpr char kHelp[] =
    R"(usage: granary-extract [--] FILE

Writes a line of JSON {"format","pages","title","bytes"}, then that many bytes of UTF-8 text with
U+000C after each page. Reads text, Markdown, source and PDF files. Of text files the line also
names the "encoding"; "replaced" counts characters that could not be read.
A refusal is {"error","what","detail"} with exit code 2.

Before the document is opened the process limits itself for good: 1 GiB of address space, 120
seconds of processor time, 32 open files, 64 MiB of output, no network, no other process, no file
opened for writing, no new privileges, and it dies with its parent.
)";

bool write_all(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t wrote = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(wrote));
    }
    return true;
}

std::string line(const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Outcome<Document> read_document(const std::string& path) {
    const Outcome<std::string> bytes = read_input(path);
    if (!bytes) return tl::unexpected<Refused>(bytes.error());
    return is_pdf(path, *bytes) ? read_pdf(path, *bytes) : read_text(path, *bytes);
}

int answer(const Outcome<Document>& outcome) {
    if (!outcome) {
        const Refused& refused = outcome.error();
        write_all(
            line({{"error", refused.code}, {"what", refused.what}, {"detail", refused.detail}}));
        return kRefusedExit;
    }
    ordered_json header = {{"format", outcome->format},
                           {"pages", outcome->pages},
                           {"title", outcome->title},
                           {"bytes", outcome->text.size()}};
    if (!outcome->encoding.empty()) header["encoding"] = outcome->encoding;
    if (outcome->replaced > 0) header["replaced"] = outcome->replaced;
    return write_all(line(header)) && write_all(outcome->text) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "--help") {
        return write_all(kHelp) ? 0 : 1;
    }
    const bool marked = argc == 3 && std::string_view(argv[1]) == "--";
    if (argc != 2 && !marked) {
        std::fputs("usage: granary-extract [--] FILE\n", stderr);
        return kUsageExit;
    }
    if (const auto refused = confine()) {
        return answer(
            refuse("unconfined", "the system does not let the reader limit itself", *refused));
    }
    try {
        return answer(read_document(argv[argc - 1]));
    } catch (const std::bad_alloc&) {
        return answer(
            refuse("no_memory", "reading this document needs too much memory", "more than 1 GiB"));
    } catch (const std::exception& e) {
        return answer(refuse("damaged", "this document cannot be read", e.what()));
    }
}
