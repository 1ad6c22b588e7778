// SPDX-License-Identifier: GPL-3.0-or-later
// What the extractor denies itself before it looks at a document, so that a malicious one gains
// nothing by taking it over.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace granary::extract {

inline constexpr size_t kAddressSpace = size_t{1} << 30;
inline constexpr unsigned kCpuSeconds = 120;
inline constexpr unsigned kOpenFiles = 32;

// Sets the limits; an error says which one the system refused. They last until the process ends:
// address space, processor seconds, open files, no core dump, no bytes to files (but to standard
// output, where that is a file: kTextLimit), no new privileges, death with the parent, and only
// those system calls that reading files and writing to standard output need: no network, no new
// process, nothing opened for writing.
std::optional<std::string> confine();

}  // namespace granary::extract
