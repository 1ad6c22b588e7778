// SPDX-License-Identifier: GPL-3.0-or-later
// Tests compute on the processor, also where a GPU is: its numbers are what they know.
#pragma once

#include "granary/settings.h"

namespace granary::test {

inline Settings host_settings() {
    Settings settings;
    settings.device = "host";
    return settings;
}

}  // namespace granary::test
