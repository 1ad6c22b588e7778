// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

extern char** environ;

namespace granary::extract {

using std::chrono::milliseconds;

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fail(ErrorKind::io, "no pipe for a child process",
                    std::generic_category().message(errno));
    }
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);

    // A child that ignores SIGPIPE, as this process may, would outlive its reader.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults, none;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);

    pid_t pid = -1;
    const int code = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return fail(ErrorKind::io, "a program cannot be started",
                    arguments[0] + ": " + std::generic_category().message(code));
    }
    return ChildProcess(pid, ends[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::exchange(other.output_, -1)) {}

ChildProcess::~ChildProcess() {
    if (output_ >= 0) close(output_);
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

ChildProcess::Read ChildProcess::read(std::string& to, milliseconds patience) {
    pollfd ready = {output_, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return Read::nothing_yet;
    char buffer[65536];
    const ssize_t got = ::read(output_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) return Read::nothing_yet;
    if (got <= 0) return Read::end;
    to.append(buffer, static_cast<size_t>(got));
    return Read::data;
}

int ChildProcess::finish(milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    int status = 0;
    while (true) {
        const pid_t ended = waitpid(pid_, &status, WNOHANG);
        if (ended == pid_ || (ended < 0 && errno != EINTR)) break;
        if (std::chrono::steady_clock::now() > deadline) kill(pid_, SIGKILL);
        std::this_thread::sleep_for(milliseconds(1));
    }
    pid_ = -1;
    return status;
}

}  // namespace granary::extract
