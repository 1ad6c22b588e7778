// SPDX-License-Identifier: GPL-3.0-or-later
// One child process whose standard output is read. It never outlives this object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "gpu/error.h"

namespace granary::extract {

class ChildProcess {
  public:
    // arguments[0] is the program's path. Standard input and error are /dev/null.
    static Result<ChildProcess> start(const std::vector<std::string>& arguments);
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;
    ~ChildProcess();  // kills it if it still runs

    // Waits up to `patience` for output and appends it.
    enum class Read { data, nothing_yet, end };
    Read read(std::string& to, std::chrono::milliseconds patience);

    // The child closed its output: waits up to `patience` for its end, then kills it. Gives the
    // status of waitpid.
    int finish(std::chrono::milliseconds patience);

  private:
    ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

    pid_t pid_ = -1;
    int output_ = -1;
};

}  // namespace granary::extract
