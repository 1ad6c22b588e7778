// SPDX-License-Identifier: GPL-3.0-or-later
// What the kernel says of the machine, in its small text files.
#pragma once

#include <string>

namespace granary::gpu {

// The first 64 KiB of a file; empty where it cannot be read.
std::string read_small_file(const std::string& path);

// Without the white space at both ends.
std::string trimmed(std::string text);

}  // namespace granary::gpu
