// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "engine/gguf/printable.h"

namespace granary::gguf {
namespace {

tl::unexpected<Error> io_error(const char* what, const std::string& path, int code,
                               const char* advice = "") {
    return fail(ErrorKind::io, what, quoted(path) + ": " + std::generic_category().message(code),
                advice);
}

// Closes at the end of the scope: a mapping outlives its descriptor.
struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

}  // namespace

Result<Mapping> Mapping::open(const std::string& path) {
    // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.number < 0) {
        const int code = errno;
        return io_error("the model file cannot be opened", path, code,
                        code == ENOENT ? "Check the name; it may have been moved" : "");
    }
    struct stat status = {};
    if (::fstat(file.number, &status) != 0) {
        return io_error("the model file cannot be examined", path, errno);
    }
    if (!S_ISREG(status.st_mode)) {
        return fail(ErrorKind::io, "this is not a regular file", quoted(path),
                    "Choose a .gguf file");
    }
    if (status.st_size <= 0) {
        return fail(ErrorKind::invalid_file, "the model file is empty",
                    quoted(path) + ": magic, offset 0: needs 4 bytes, the file has 0",
                    "Download or copy it again");
    }
    const auto size = static_cast<uint64_t>(status.st_size);
    void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (data == MAP_FAILED) return io_error("the model file cannot be mapped", path, errno);
    return Mapping(path, static_cast<const std::byte*>(data), size, status.st_dev, status.st_ino);
}

Mapping::Mapping(std::string path, const std::byte* data, uint64_t size, uint64_t device,
                 uint64_t number)
    : path_(std::move(path)),
      device_(device),
      number_(number),
      data_(data, Unmap{size}),
      guard_(data, size) {}

Result<void> Mapping::intact() const {
    const auto lost = guard_.lost_from();
    if (!lost) return {};
    return fail(ErrorKind::io, "the model file could not be read while it was in use",
                quoted(path_) + ": nothing is left from byte " + std::to_string(*lost) + " of " +
                    std::to_string(size()) + " on",
                "If it was cut short, download or copy it again; else check the disk that it is "
                "on. Then reload the model");
}

Result<void> Mapping::still_whole() const {
    if (auto r = intact(); !r) return r;
    struct stat status = {};
    const bool same =
        ::stat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == number_;
    if (!same || static_cast<uint64_t>(status.st_size) >= size()) return {};
    return fail(ErrorKind::invalid_file, "the model file was cut short while it was in use",
                quoted(path_) + " had " + std::to_string(size()) + " bytes and has " +
                    std::to_string(status.st_size),
                "Download or copy it again, then reload the model");
}

void Mapping::Unmap::operator()(const std::byte* data) const {
    ::munmap(const_cast<std::byte*>(data), bytes);
}

}  // namespace granary::gguf
