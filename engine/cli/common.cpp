// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/common.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "engine/run/atomic_file.h"

namespace granary::cli {

int exit_code(const Error& error) {
    switch (error.kind) {
        case ErrorKind::invalid_argument:
            return kUsage;
        case ErrorKind::invalid_file:
        case ErrorKind::unsupported:
        case ErrorKind::io:
            return kBadInput;
        case ErrorKind::refused:
            return kRefused;
        case ErrorKind::cancelled:
            return kInterrupted;
        case ErrorKind::out_of_memory:
        case ErrorKind::device:
        case ErrorKind::device_lost:
        case ErrorKind::internal:
            return kFailed;
    }
    return kFailed;
}

namespace {

// Bytes of the control character that `text`, not empty, begins with; 0: it begins with none.
size_t control_bytes(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
    const bool second_set = byte(0) == 0xc2 && text.size() > 1 && byte(1) >= 0x80 && byte(1) < 0xa0;
    return second_set ? 2 : 0;
}

// `text` with write(control) in the place of each control character.
template <class Write>
std::string without_controls(std::string_view text, const Write& write) {
    std::string result;
    while (!text.empty()) {
        const size_t bytes = control_bytes(text);
        if (bytes > 0)
            result += write(text.substr(0, bytes));
        else
            result += text[0];
        text.remove_prefix(std::max<size_t>(bytes, 1));
    }
    return result;
}

}  // namespace

int report_error(const Error& error, std::ostream& err) {
    const std::string line = without_controls(error.message(), [](std::string_view control) {
        std::array<char, 8> escaped{};
        std::snprintf(escaped.data(), escaped.size(), "\\x%02x",
                      static_cast<unsigned char>(control.back()));
        return std::string(escaped.data());
    });
    err << "granary-cli: " << line << "\n";
    return exit_code(error);
}

std::string for_terminal(std::string_view text) {
    return without_controls(text, [](std::string_view control) {
        const bool stays = control == "\n" || control == "\t";
        return stays ? std::string(control) : std::string("\uFFFD");
    });
}

Result<std::string> read_file(const std::string& path, uint64_t limit) {
    std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!file) return fail(ErrorKind::io, "cannot open " + path, std::strerror(errno));
    std::string text;
    char buffer[65536];
    size_t n;
    while ((n = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) {
        if (text.size() + n > limit)
            return fail(ErrorKind::io, path + " is too large", "more than " + format_bytes(limit));
        text.append(buffer, n);
    }
    if (std::ferror(file.get()))
        return fail(ErrorKind::io, "cannot read " + path, std::strerror(errno));
    return text;
}

namespace {

// Where a file of this name is written. A link leads to what it names; what is no regular file (a
// device, a pipe) has no place beside it.
struct Target {
    std::string path;
    bool in_place = false;
};
Target target_of(const std::string& path) {
    std::error_code none;
    const auto status = std::filesystem::status(path, none);
    if (std::filesystem::is_regular_file(status)) {
        const auto real = std::filesystem::canonical(path, none);
        return {none ? path : real.string(), false};
    }
    return {path, std::filesystem::exists(status) && !std::filesystem::is_directory(status)};
}

// Ignores the signals that end a process, so that none cuts a file in two.
class SignalsIgnored {
  public:
    SignalsIgnored() {
        for (size_t i = 0; i < kSignals.size(); ++i) before_[i] = std::signal(kSignals[i], SIG_IGN);
    }
    ~SignalsIgnored() {
        for (size_t i = 0; i < kSignals.size(); ++i)
            if (before_[i] != SIG_ERR) std::signal(kSignals[i], before_[i]);
    }
    SignalsIgnored(const SignalsIgnored&) = delete;
    SignalsIgnored& operator=(const SignalsIgnored&) = delete;

  private:
    static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    std::array<void (*)(int), kSignals.size()> before_{};
};

}  // namespace

Result<void> check_writable(const std::string& path) {
    const Target target = target_of(path);
    const auto folder = std::filesystem::path(target.path).parent_path();
    const std::string place = target.in_place  ? target.path
                              : folder.empty() ? std::string(".")
                                               : folder.string();
    std::error_code none;
    if (std::filesystem::is_directory(target.path, none))
        return fail(ErrorKind::io, "cannot write " + path, "it is a folder");
    if (access(place.c_str(), W_OK) != 0)
        return fail(ErrorKind::io, "cannot write " + path, std::strerror(errno));
    return {};
}

Result<void> write_file_atomically(const std::string& path, std::string_view text) {
    const Target target = target_of(path);
    const SignalsIgnored whole;
    if (!target.in_place) {
        auto file = AtomicFile::create(target.path, text.size(), 0666);
        if (!file) return tl::unexpected(file.error());
        if (auto r = file->write(std::as_bytes(std::span(text))); !r) return r;
        return file->commit();
    }
    FILE* const file = std::fopen(target.path.c_str(), "wb");
    const bool ok = file && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                    std::fflush(file) == 0;
    const int cause = errno;
    if (file && std::fclose(file) == 0 && ok) return {};
    return fail(ErrorKind::io, "cannot write " + path, std::strerror(ok ? errno : cause));
}

}  // namespace granary::cli
