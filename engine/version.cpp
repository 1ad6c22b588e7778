// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/version.h"

namespace granary {
const char* version() { return GRANARY_VERSION; }
}  // namespace granary
