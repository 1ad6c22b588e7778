// SPDX-License-Identifier: GPL-3.0-or-later
// The program: options, theme, window, script.
#pragma once

namespace granary::gui {

// The exit code of the process.
int runApplication(int argc, char** argv);

}  // namespace granary::gui
