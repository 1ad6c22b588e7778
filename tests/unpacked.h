// SPDX-License-Identifier: GPL-3.0-or-later
// Test data that is kept gzipped.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace granary::test {

inline std::string unpacked(const std::string& path) {
    std::string bytes;
    const gzFile file = gzopen(path.c_str(), "rb");
    EXPECT_NE(file, nullptr) << path;
    if (file == nullptr) return bytes;
    char buffer[1 << 16];
    for (int n; (n = gzread(file, buffer, sizeof buffer)) > 0;)
        bytes.append(buffer, static_cast<size_t>(n));
    EXPECT_EQ(gzclose(file), Z_OK) << path;
    return bytes;
}

// A file of 32-bit numbers that is kept as its planes, all first bytes of four, then all second
// ones and so on: gzip makes a sixth less of random weights than of the file as it is.
inline std::string unpacked_planes(const std::string& path) {
    const std::string planes = unpacked(path);
    const size_t numbers = planes.size() / 4;
    std::string bytes = planes;
    for (size_t i = 0; i < numbers; ++i)
        for (size_t plane = 0; plane < 4; ++plane)
            bytes[4 * i + plane] = planes[plane * numbers + i];
    return bytes;
}

}  // namespace granary::test
