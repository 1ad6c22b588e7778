// SPDX-License-Identifier: GPL-3.0-or-later
// Templates of published models against what Jinja2 rendered from them, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "granary/chat_template.h"

namespace granary {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::filesystem::path> fixture_files() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(GRANARY_TEST_DATA "/templates")) {
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

TEST(ChatTemplateFixtures, RenderAsJinja2Does) {
    size_t cases = 0;
    for (const auto& path : fixture_files()) {
        std::ifstream stream(path);
        const Json fixture = Json::parse(stream);
        const auto parsed = ChatTemplate::parse(fixture["template"].get<std::string>());
        ASSERT_TRUE(parsed) << path << ": " << parsed.error().message();
        for (const Json& one : fixture["cases"]) {
            Json context = one["context"];
            context["now"] = fixture["now"];
            const auto rendered = parsed->render(context);
            const auto expected = one["expected"].get<std::string>();
            ++cases;
            SCOPED_TRACE(path.filename().string() + ", " + one["case"].get<std::string>());
            ASSERT_TRUE(rendered) << rendered.error().message();
            EXPECT_EQ(*rendered, expected);
        }
    }
    EXPECT_EQ(cases, 88u);
}

}  // namespace
}  // namespace granary
