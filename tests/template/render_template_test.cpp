// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/render_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace granary::cli {
namespace {

class RenderTemplate : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
        folder_ = std::filesystem::path(::testing::TempDir()) /
                  (std::string("granary_template_") + test->name());
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string write(const std::string& name, const std::string& text) {
        const auto path = folder_ / name;
        std::ofstream(path, std::ios::binary) << text;
        return path.string();
    }

    int render(const std::string& source, const std::string& context) {
        TemplateOptions options;
        options.template_file = write("template.jinja", source);
        options.context_file = write("context.json", context);
        return render(options);
    }
    int render(const TemplateOptions& options) {
        out_.str({});
        err_.str({});
        return render_template(options, out_, err_);
    }

    std::filesystem::path folder_;
    std::ostringstream out_;
    std::ostringstream err_;
};

TEST_F(RenderTemplate, PrintsThePromptAlone) {
    EXPECT_EQ(render("{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}",
                     R"({"bos_token": "<s>", "messages": [{"content": "Grüße"}]})"),
              0);
    EXPECT_EQ(out_.str(), "<s>[Grüße]");
    EXPECT_EQ(err_.str(), "");
}

TEST_F(RenderTemplate, FixesTheClock) {
    EXPECT_EQ(render("{{ strftime_now('%d %B %Y') }}", R"({"now": "2026-01-02T03:04:05"})"), 0);
    EXPECT_EQ(out_.str(), "02 January 2026");
}

TEST_F(RenderTemplate, TakesTheTemplateOfAModel) {
    TemplateOptions options;
    options.model = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
    options.context_file = write(
        "context.json",
        R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})");
    EXPECT_EQ(render(options), 0) << err_.str();
    EXPECT_EQ(out_.str(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(RenderTemplate, GivesTheMessageOfATemplateThatRaises) {
    EXPECT_NE(render("before {{ raise_exception('roles must alternate') }}", "{}"), 0);
    EXPECT_EQ(out_.str(), "");
    EXPECT_NE(err_.str().find("roles must alternate"), std::string::npos);
}

TEST_F(RenderTemplate, SaysWhatCannotBeUsed) {
    EXPECT_NE(render("{{ x | groupby('a') }}", "{}"), 0);
    EXPECT_NE(err_.str().find("filter 'groupby' is not supported"), std::string::npos);
    EXPECT_NE(err_.str().find("line 1, column 8"), std::string::npos);
    EXPECT_NE(render("x", "[1]"), 0);
    EXPECT_NE(err_.str().find("not a JSON object"), std::string::npos);
    EXPECT_NE(render("x", "{"), 0);
    EXPECT_EQ(out_.str(), "");

    TemplateOptions options;
    options.context_file = write("context.json", "{}");
    EXPECT_NE(render(options), 0) << "no template named";
    options.template_file = (folder_ / "absent.jinja").string();
    EXPECT_NE(render(options), 0);
    EXPECT_NE(err_.str().find("absent.jinja"), std::string::npos);
}

}  // namespace
}  // namespace granary::cli
