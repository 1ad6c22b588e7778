// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "engine/extract/document_text.h"
#include "gpu/error.h"

namespace granary::extract {
namespace {

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

}  // namespace

Outcome<std::string> read_input(const std::string& path) {
    // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (file.number < 0) {
        const int code = errno;
        const char* const name = code == ENOENT || code == ENOTDIR ? "not_found"
                                 : code == EACCES || code == EPERM ? "denied"
                                 : code == ENXIO                   ? "not_a_file"
                                                                   : "io";
        return refuse(name, "the document cannot be opened", std::generic_category().message(code));
    }
    struct stat status = {};
    if (::fstat(file.number, &status) != 0) {
        return refuse("io", "the document cannot be examined",
                      std::generic_category().message(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return refuse("not_a_file", "this is not a regular file",
                      std::string("it is ") + kind_of(status.st_mode));
    }
    const auto size = static_cast<uint64_t>(std::max<off_t>(status.st_size, 0));
    if (size > kInputLimit) {
        return refuse("too_large", "the document is too large",
                      format_bytes(size) + ", at most " + format_bytes(kInputLimit));
    }
    std::string bytes(size, '\0');
    size_t have = 0;
    while (have < bytes.size()) {
        const ssize_t got = ::read(file.number, bytes.data() + have, bytes.size() - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return refuse("io", "the document cannot be read",
                          std::generic_category().message(errno));
        }
        if (got == 0) break;
        have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    if (bytes.empty()) return refuse("empty", "the document is empty", "0 bytes");
    return bytes;
}

std::string file_name(const std::string& path) {
    return title_line(path.substr(path.find_last_of('/') + 1));
}

}  // namespace granary::extract
