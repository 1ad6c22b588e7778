// SPDX-License-Identifier: GPL-3.0-or-later
// How the template engine stops. Thrown inside the engine only; ChatTemplate turns it into Error.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "gpu/error.h"

namespace granary::jinja {

struct Position {
    uint32_t line = 0;  // from 1; 0: not known
    uint32_t column = 0;
};

struct Failure {
    ErrorKind kind = ErrorKind::invalid_argument;
    std::string what;
    Position at = {};
    bool raised = false;  // by raise_exception
};

[[noreturn]] inline void stop(std::string what, ErrorKind kind = ErrorKind::invalid_argument) {
    throw Failure{kind, std::move(what)};
}

[[noreturn]] inline void stop_at(Position at, std::string what,
                                 ErrorKind kind = ErrorKind::invalid_file) {
    throw Failure{kind, std::move(what), at};
}

}  // namespace granary::jinja
