// SPDX-License-Identifier: GPL-3.0-or-later
// The one error type of the program. Errors are values: they are made where the cause is known
// and cross every layer unharmed to the person who can act on them.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace granary {

enum class ErrorKind {
    invalid_file,      // a file's content breaks its format
    unsupported,       // valid, but this program cannot run it
    invalid_argument,  // the caller asked for something that makes no sense
    refused,           // would not fit; nothing was read or changed
    out_of_memory,     // host or device memory is missing
    io,                // the operating system refused a file operation
    device,            // a device call failed, its context is alive
    device_lost,       // the device context is gone; reload the model
    cancelled,         // a person stopped it
    internal,          // a fault of this program
};

struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string what;    // what happened, one sentence without a final full stop
    std::string detail;  // the numbers: file, field, offset, bytes
    std::string advice;  // what a person can do; may be empty

    // "what: detail. advice" with the empty parts left out.
    std::string message() const;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string what, std::string detail = {},
                                  std::string advice = {}) {
    return tl::unexpected<Error>(
        Error{kind, std::move(what), std::move(detail), std::move(advice)});
}

// "6.5 MiB", "512 bytes": binary units, at most one decimal.
std::string format_bytes(unsigned long long bytes);
std::string grouped(unsigned long long n);  // "524,288"

}  // namespace granary
