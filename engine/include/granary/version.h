// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

namespace granary {
const char* version();  // "0.1.0"
}
