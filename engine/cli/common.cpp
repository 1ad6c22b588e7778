// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/common.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

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

int report_error(const Error& error, std::ostream& err) {
    err << "granary-cli: " << error.message() << "\n";
    return exit_code(error);
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

Result<void> write_file_atomically(const std::string& path, std::string_view text) {
    const std::string temporary = path + ".part" + std::to_string(getpid());
    const auto failed = [&](const char* what) {
        const std::string cause = std::strerror(errno);
        std::remove(temporary.c_str());
        return fail(ErrorKind::io, what + path, cause);
    };
    FILE* const file = std::fopen(temporary.c_str(), "wb");
    if (!file) return failed("cannot write ");
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                         std::fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (std::fclose(file) != 0 || !written) return failed("cannot write ");
    if (std::rename(temporary.c_str(), path.c_str()) != 0) return failed("cannot replace ");
    return {};
}

}  // namespace granary::cli
