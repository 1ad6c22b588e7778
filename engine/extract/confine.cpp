// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <system_error>
#include <vector>

#include "engine/extract/refusal.h"

namespace granary::extract {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr unsigned kArchitecture = AUDIT_ARCH_RISCV64;
#else
#error "name this architecture's audit number, so that its system calls can be filtered"
#endif

// AddressSanitizer reserves terabytes of addresses, and sanitizers start processes of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Reading files, memory, time, and the ways to end.
constexpr unsigned kAllowed[] = {
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fcntl,
    SYS_fadvise64,
    SYS_getcwd,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrusage,
    SYS_times,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_tgkill,
    SYS_exit,
    SYS_exit_group,
#if defined(__x86_64__)
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_time,
#endif
};

sock_filter statement(unsigned code, unsigned k) {
    return {static_cast<uint16_t>(code), 0, 0, k};
}
sock_filter jump_if_equal(unsigned k, uint8_t yes, uint8_t no) {
    return {BPF_JMP | BPF_JEQ | BPF_K, yes, no, k};
}

// Classic BPF, see Documentation/userspace-api/seccomp_filter.rst of the Linux kernel. Everything
// not allowed gets ENOSYS: libraries then fall back on older calls or give up politely.
std::vector<sock_filter> system_call_filter() {
    const unsigned load = BPF_LD | BPF_W | BPF_ABS;
    const sock_filter allow = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_filter deny = statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    std::vector<sock_filter> filter = {
        statement(load, offsetof(seccomp_data, arch)),
        jump_if_equal(kArchitecture, 1, 0),
        deny,
        statement(load, offsetof(seccomp_data, nr)),
    };
    for (const unsigned call : kAllowed) {
        filter.push_back(jump_if_equal(call, 0, 1));
        filter.push_back(allow);
    }
    // Opening: for reading only. The flags are the low half of the argument (little endian).
    const auto read_only = [&](unsigned call, unsigned argument) {
        filter.push_back(jump_if_equal(call, 0, 5));
        filter.push_back(statement(load, static_cast<unsigned>(offsetof(seccomp_data, args) +
                                                               argument * sizeof(uint64_t))));
        filter.push_back(statement(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE | O_CREAT | O_TRUNC));
        filter.push_back(jump_if_equal(O_RDONLY, 0, 1));
        filter.push_back(allow);
        filter.push_back(deny);
    };
    read_only(SYS_openat, 2);
#if defined(__x86_64__)
    read_only(SYS_open, 1);
#endif
    filter.push_back(deny);
    return filter;
}

bool limit(int resource, rlim_t soft, rlim_t hard) {
    rlimit now = {};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) return false;
    // Lower limits from outside stay.
    const auto least = [](rlim_t a, rlim_t b) { return a < b ? a : b; };
    const rlimit wanted = {least(soft, least(now.rlim_cur, now.rlim_max)),
                           least(hard, now.rlim_max)};
    return setrlimit(static_cast<__rlimit_resource>(resource), &wanted) == 0;
}

std::string refused(const char* what) {
    return std::string(what) + ": " + std::generic_category().message(errno);
}

}  // namespace

std::optional<std::string> confine() {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return refused("death with the parent");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return refused("no new privileges");
    // Whatever else was left open by the parent. Kernels before 5.9 have no such call.
    if (syscall(SYS_close_range, 3u, ~0u, 0u) != 0) {
        for (int descriptor = 3; descriptor < 1024; ++descriptor) close(descriptor);
    }
    struct stat output = {};
    const bool to_file = fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(output.st_mode);
    const rlim_t file_bytes =
        to_file ? static_cast<rlim_t>(output.st_size) + kTextLimit + kHeaderLimit : 0;
    if (!kSanitized && !limit(RLIMIT_AS, kAddressSpace, kAddressSpace)) {
        return refused("address space");
    }
    if (!limit(RLIMIT_CPU, kCpuSeconds, kCpuSeconds + 1)) return refused("processor seconds");
    if (!limit(RLIMIT_FSIZE, file_bytes, file_bytes)) return refused("bytes written to files");
    if (!limit(RLIMIT_NOFILE, kOpenFiles, kOpenFiles)) return refused("open files");
    if (!limit(RLIMIT_CORE, 0, 0)) return refused("core dumps");
    if (!kSanitized) {
        std::vector<sock_filter> filter = system_call_filter();
        const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
            return refused("system call filter");
        }
    }
    return std::nullopt;
}

}  // namespace granary::extract
