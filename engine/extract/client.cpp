// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/client.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "engine/extract/child_process.h"
#include "engine/extract/refusal.h"
#include "engine/text/utf8.h"

namespace granary {
namespace {

using namespace std::chrono_literals;
using extract::ChildProcess;
using nlohmann::json;

// The child may have been taken over by the document: nothing that it says is believed unchecked.
tl::unexpected<Error> broken(const std::string& file, const std::string& why) {
    return fail(ErrorKind::internal, "the document's reader gave a malformed answer",
                file + ": " + why);
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<uint64_t> number_of(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
    return found->get<uint64_t>();
}

tl::unexpected<Error> refusal(const std::string& file, const json& header) {
    const std::string code = text_of(header, "error");
    const std::string detail = text_of(header, "detail");
    for (const extract::Refusal& known : extract::kRefusals) {
        if (known.code != code) continue;
        return fail(known.kind, text_of(header, "what"),
                    detail.empty() ? file : file + ": " + detail, std::string(known.advice));
    }
    return broken(file, "unknown refusal");
}

tl::unexpected<Error> death(const std::string& file, int status) {
    const char* const what = "the document could not be read";
    if (!WIFSIGNALED(status)) {
        // Out of memory inside the PDF library ends so.
        return fail(
            ErrorKind::invalid_file, what,
            file + ": its reader gave up with exit code " + std::to_string(WEXITSTATUS(status)),
            "It is damaged or needs more than 1 GiB of memory to read");
    }
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU || signal == SIGKILL) {
        return fail(ErrorKind::refused, what,
                    file +
                        ": its reader was ended after more than 120 s of processor time or "
                        "for want of memory");
    }
    return fail(ErrorKind::invalid_file, what,
                file + ": its reader crashed on it (" + strsignal(signal) + ")",
                "The file is damaged or made to harm; nothing else was touched");
}

Result<ExtractedDocument> parse(const std::string& file, std::string output, int status) {
    const size_t end = output.find('\n');
    const bool ended_well =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2);
    if (!ended_well) return death(file, status);
    if (end == std::string::npos || end > extract::kHeaderLimit) return broken(file, "no header");
    const json header =
        json::parse(output.begin(), output.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (!header.is_object()) return broken(file, "the header is not a JSON object");
    if (WEXITSTATUS(status) == 2) return refusal(file, header);

    const auto bytes = number_of(header, "bytes");
    const auto pages = number_of(header, "pages");
    output.erase(0, end + 1);
    if (!bytes || *bytes != output.size()) {
        return broken(file, std::to_string(output.size()) + " bytes of text where " +
                                std::to_string(bytes.value_or(0)) + " were announced");
    }
    if (!pages || *pages == 0 || *pages > bytes) return broken(file, "impossible page count");
    if (text::valid_utf8_prefix(output) != output.size()) return broken(file, "not UTF-8");
    ExtractedDocument document;
    document.format = text_of(header, "format");
    document.encoding = text_of(header, "encoding");
    document.title = text_of(header, "title");
    document.pages = static_cast<uint32_t>(*pages);
    document.replaced = number_of(header, "replaced").value_or(0);
    document.text = std::move(output);
    return document;
}

}  // namespace

std::string ExtractedDocument::prompt_text() const {
    std::string prompt;
    prompt.reserve(text.size());
    for (const char c : text) {
        if (c != '\f') {
            prompt += c;
        } else if (!prompt.empty()) {
            prompt += '\n';  // after the line end of the page's last line
        }
    }
    const size_t last = prompt.find_last_not_of(" \t\r\n");
    prompt.resize(last == std::string::npos ? 0 : last + 1);
    return prompt;
}

Result<ExtractedDocument> extract_document(const std::string& extractor_path,
                                           const std::string& file, const StopSignal& stop,
                                           std::chrono::milliseconds patience) {
    auto child = ChildProcess::start({extractor_path, "--", file});
    if (!child) return tl::unexpected<Error>(child.error());
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::string output;
    while (child->read(output, 20ms) != ChildProcess::Read::end) {
        if (stop.requested()) {
            return fail(ErrorKind::cancelled, "reading the document was stopped", file);
        }
        if (output.size() > extract::kTextLimit + extract::kHeaderLimit) {
            return fail(ErrorKind::refused, "the document is too large",
                        file + ": more than " + format_bytes(extract::kTextLimit) + " of text");
        }
        if (std::chrono::steady_clock::now() > deadline) {
            return fail(ErrorKind::refused, "reading the document took too long",
                        file + ": more than " + std::to_string(patience.count() / 1000) + " s");
        }
    }
    const int status = child->finish(1s);
    return parse(file, std::move(output), status);
}

std::string default_extractor_path() {
    std::error_code code;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
    return code ? "granary-extract" : (self.parent_path() / "granary-extract").string();
}

}  // namespace granary
