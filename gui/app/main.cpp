// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/application.h"

int main(int argc, char** argv) {
    return granary::gui::runApplication(argc, argv);
}
