// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/gguf/printable.h"

namespace granary {
namespace {

tl::unexpected<Error> io_error(const char* what, const std::string& path, int code) {
    return fail(ErrorKind::io, what,
                gguf::quoted(path) + ": " + std::generic_category().message(code));
}

// Opens `part` for this process alone. What a process that was killed left there is used again, so
// that there is never more than one such file.
Result<int> open_alone(const std::string& part, unsigned mode) {
    for (int attempt = 0; attempt < 8; ++attempt) {
        const int file =
            ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
        if (file < 0) return io_error("the file cannot be written", part, errno);
        struct stat opened = {}, named = {};
        const bool regular = ::fstat(file, &opened) == 0 && S_ISREG(opened.st_mode);
        const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
        const int code = errno;
        if (!regular || (!locked && code == EWOULDBLOCK)) {
            ::close(file);
            return fail(ErrorKind::io, "the file cannot be written",
                        gguf::quoted(part) + (regular ? " is being written by another program"
                                                      : " is not a regular file"));
        }
        // Another user could read what is written here, and a second name would lose its content.
        if (opened.st_uid != ::geteuid() || opened.st_nlink > 1) {
            ::close(file);
            return fail(ErrorKind::io, "the file cannot be written",
                        gguf::quoted(part) + " is somebody else's file", "Delete it or rename it");
        }
        // What was left there may be open to more readers than its new content.
        const bool closed_enough =
            (opened.st_mode & 0777 & ~mode) == 0 || ::fchmod(file, opened.st_mode & mode) == 0;
        if (!closed_enough) {
            const int refused = errno;
            ::close(file);
            return io_error("the file cannot be written", part, refused);
        }
        // Another may have finished it between the two calls: then it is somebody's file.
        if (::lstat(part.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
            named.st_dev == opened.st_dev && ::ftruncate(file, 0) == 0)
            return file;
        ::close(file);
    }
    return fail(ErrorKind::io, "the file cannot be written",
                gguf::quoted(part) + " is written by other programs again and again");
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path, uint64_t bytes, unsigned mode) {
    std::error_code none;
    const auto real = std::filesystem::canonical(path, none);
    const std::string target = none ? path : real.string();
    if (const auto status = std::filesystem::status(target, none);
        std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        return fail(ErrorKind::io, "the file cannot be written",
                    gguf::quoted(path) + " is not a regular file");
    const std::string part = target + ".part";
    auto file = open_alone(part, mode);
    if (!file) return tl::unexpected(file.error());
    AtomicFile made(target, part, *file);
    struct statvfs disk = {};
    if (::fstatvfs(*file, &disk) == 0) {
        const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
        if (free < bytes)
            return fail(ErrorKind::refused, "the disk has no room for the file",
                        gguf::quoted(path) + ": " + format_bytes(bytes) + " needed, " +
                            format_bytes(free) + " free",
                        "Free some space or choose another folder");
    }
    return made;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_(std::move(other.part_)),
      file_(std::exchange(other.file_, -1)) {}

AtomicFile::~AtomicFile() {
    if (file_ < 0) return;
    ::unlink(part_.c_str());
    ::close(file_);
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(file_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return io_error("the file cannot be written", path_, n < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
}

Result<void> AtomicFile::commit() {
    if (::fsync(file_) != 0) return io_error("the file cannot be written", path_, errno);
    if (::rename(part_.c_str(), path_.c_str()) != 0)
        return io_error("the file cannot be replaced", path_, errno);
    ::close(std::exchange(file_, -1));
    // The folder's entry, too. Not every file system can; the file itself is whole either way.
    auto folder = std::filesystem::path(path_).parent_path();
    if (folder.empty()) folder = ".";
    if (const int entry = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); entry >= 0) {
        (void)::fsync(entry);
        ::close(entry);
    }
    return {};
}

}  // namespace granary
