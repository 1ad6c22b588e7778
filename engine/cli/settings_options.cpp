// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/settings_options.h"

namespace granary::cli {

void SettingsOptions::add_to(CLI::App& command) {
    values_.reserve(Settings::entries().size());  // CLI11 keeps references to the strings
    for (const Settings::Entry& entry : Settings::entries()) {
        auto& value = values_.emplace_back(std::string(entry.name), std::nullopt);
        command.add_option("--" + value.first, value.second, std::string(entry.help))
            ->type_name("VALUE")
            ->group("Settings");
    }
}

Result<Settings> SettingsOptions::settings() const {
    Settings settings;
    for (const auto& [name, value] : values_) {
        if (!value) continue;
        if (auto set = settings.set(name, *value); !set) return tl::unexpected(set.error());
    }
    return settings;
}

}  // namespace granary::cli
