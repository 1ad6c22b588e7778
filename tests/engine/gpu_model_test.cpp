// SPDX-License-Identifier: GPL-3.0-or-later
// Whole models on a GPU: against numbers of another engine, and the same tokens whatever memory
// did. Without a GPU that this build can use every test is skipped.
//
//   gpu_model_test [--device NAME] [FOLDER...]
//
// NAME: another device than the first GPU ("host" tries the tests themselves out). FOLDERs of
// models with their numbers (NAME.gguf, NAME.json) take the place of the project's own.
#include <algorithm>
#include <iostream>
#include <random>
#include <set>

#include "gpu/found_devices.h"
#include "tests/engine/fixture.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

namespace fs = std::filesystem;

struct Options {
    std::string device;  // empty: there is none
    std::string reason;  // why
    // It is the emulated card of tests/gpu/card, a thousand times slower than a GPU: less is asked.
    bool emulated = false;
    std::vector<std::string> folders{GRANARY_TEST_DATA "/micro", GRANARY_TEST_DATA "/quant"};
};
Options& options() {
    static Options all;
    return all;
}

class GpuModel : public ::testing::Test {
  protected:
    struct Model {
        std::string name, path;
        Fixture fixture;
    };
    void SetUp() override {
        if (options().device.empty()) GTEST_SKIP() << "skipped: " << options().reason;
        for (const std::string& folder : options().folders) collect(folder);
        ASSERT_FALSE(models_.empty());
    }
    Settings settings() const {
        Settings settings;
        settings.device = options().device;
        settings.max_context = 4096;
        return settings;
    }
    // Reads in steps of 64 in the least budget that is admitted, to a MiB.
    Settings least_memory(const Model& model) const {
        Settings least = settings();
        least.prefill = {AutoCount::Kind::number, 64};
        const auto planner = make_planner(model.path, least);
        EXPECT_TRUE(planner) << model.name;
        uint64_t refused = 0, admitted = 1 << 14;
        while (planner && admitted - refused > 1) {
            const uint64_t middle = (refused + admitted) / 2;
            least.vram_budget = middle << 20;
            (planner->plan(least) ? admitted : refused) = middle;
        }
        least.vram_budget = admitted << 20;
        return least;
    }
    Result<LogitsResult> run(const std::string& path, const Settings& settings,
                             const LogitsRequest& request,
                             gpu::Arithmetic arithmetic = gpu::Arithmetic::fast) {
        EngineOptions engine_options;
        engine_options.settings = settings;
        engine_options.arithmetic = arithmetic;
        auto engine = Engine::open(path, engine_options);
        if (!engine) return tl::unexpected(engine.error());
        const uint64_t before = (*engine)->free_bytes_now();
        auto result = (*engine)->logits(request);
        EXPECT_EQ((*engine)->driver_allocations_after_load(), 0u);
        if (options().device != "host") {
            EXPECT_EQ((*engine)->free_bytes_now(), before);
        }
        return result;
    }

    std::vector<Model> models_;

  private:
    void collect(const std::string& folder) {
        std::set<fs::path> files;
        for (const auto& entry : fs::directory_iterator(folder)) files.insert(entry.path());
        for (const fs::path& file : files) {
            const std::string name = file.filename().string();
            const std::string planes = ".gguf.planes.gz";
            if (name.ends_with(planes)) {
                const std::string stem = name.substr(0, name.size() - planes.size());
                write_file(unpacked_.file(stem), unpacked_planes(file.string()));
                add(stem, unpacked_.file(stem), file.parent_path() / (stem + ".json"));
            } else if (file.extension() == ".gguf") {
                add(file.stem().string(), file.string(),
                    file.parent_path() / (file.stem().string() + ".json"));
            }
        }
    }
    void add(const std::string& name, const std::string& path, const fs::path& numbers) {
        // Families that this version does not run have numbers too.
        if (!fs::exists(numbers) || !make_planner(path, host_settings())) return;
        models_.push_back({name, path, read_fixture(numbers.string())});
    }
    TempDir unpacked_;
};

// f32 arithmetic: only the order of sums differs, and of f16 K/V nothing is left. Fast arithmetic:
// llama.cpp's own path, which quantises activations to 8 bits as well, differs by 1.5e-2 to 2.5e-2
// on these models and agrees in 21 of 24 argmax.
TEST_F(GpuModel, GivesTheNumbersOfAnotherEngine) {
    for (const Model& model : models_) {
        const Fixture& fixture = model.fixture;
        const LogitsRequest request{fixture.tokens, fixture.positions,
                                    static_cast<uint32_t>(fixture.greedy.size())};
        const auto exact = run(model.path, settings(), request, gpu::Arithmetic::f32);
        ASSERT_TRUE(exact) << model.name << ": " << exact.error().message();
        const auto fast = run(model.path, settings(), request);
        ASSERT_TRUE(fast) << model.name << ": " << fast.error().message();
        std::vector<double> errors;
        double worst = 0;
        for (size_t i = 0; i < fixture.positions.size(); ++i) {
            worst = std::max(worst, relative_l2(exact->logits[i], fixture.logits[i]));
            errors.push_back(relative_l2(fast->logits[i], fixture.logits[i]));
        }
        std::sort(errors.begin(), errors.end());
        const double median = errors[errors.size() / 2];
        std::cout << model.name << ": f32 " << worst << ", fast " << median << ", "
                  << equal_count(fast->argmax, fixture.argmax) << " of " << fixture.argmax.size()
                  << "\n";
        EXPECT_LT(worst, 1e-3) << model.name;
        EXPECT_EQ(exact->argmax, fixture.argmax) << model.name;
        EXPECT_EQ(exact->greedy, fixture.greedy) << model.name;
        EXPECT_LT(median, 3e-2) << model.name;
        EXPECT_GE(equal_count(fast->argmax, fixture.argmax), fixture.argmax.size() * 20 / 24)
            << model.name;
    }
}

// At any budget that is admitted, chunk, way of bringing experts, and share of host memory that is
// locked.
TEST_F(GpuModel, GivesTheSameTokensWhateverMemoryDid) {
    std::mt19937 random(7);
    for (const Model& model : models_) {
        LogitsRequest request;
        const uint32_t tokens = options().emulated ? 300 : 1500;
        for (uint32_t i = 0; i < tokens; ++i)
            request.tokens.push_back(static_cast<TokenId>(random() % 256));
        request.positions = {tokens / 2, tokens - 1};
        request.greedy = options().emulated ? 8 : 24;
        const auto expected = run(model.path, settings(), request);
        ASSERT_TRUE(expected) << model.name << ": " << expected.error().message();
        const auto same = [&](const Settings& changed, const std::string& what) {
            const auto got = run(model.path, changed, request);
            if (!got && got.error().kind == ErrorKind::refused) return;
            ASSERT_TRUE(got) << model.name << ", " << what << ": " << got.error().message();
            EXPECT_EQ(got->logits, expected->logits) << model.name << ", " << what;
            EXPECT_EQ(got->greedy, expected->greedy) << model.name << ", " << what;
        };
        const Settings least = least_memory(model);
        for (const uint32_t chunk : {64u, 448u, 2048u}) {
            if (chunk > tokens && options().emulated) continue;
            for (const bool small : {false, true}) {
                Settings changed = small ? least : settings();
                changed.prefill = {AutoCount::Kind::number, chunk};
                same(changed, std::to_string(chunk) + (small ? ", least memory" : ""));
            }
        }
        for (const char* stream_min : {"1", "never"}) {
            for (const char* page_lock : {"0", "1MiB", "auto"}) {
                Settings changed = least;
                ASSERT_TRUE(changed.set("prefill-stream-min", stream_min));
                ASSERT_TRUE(changed.set("page-lock", page_lock));
                same(changed, std::string("streaming ") + stream_min + ", locked " + page_lock);
            }
        }
    }
}

// The processor's share differs in the last bits of quantised activations, and no more.
TEST_F(GpuModel, TheProcessorsShareIsClose) {
    for (const Model& model : models_) {
        LogitsRequest request;
        request.tokens = model.fixture.tokens;
        request.positions = {static_cast<uint32_t>(request.tokens.size()) - 1};
        request.greedy = 16;
        const Settings least = least_memory(model);
        Settings shared = least;
        shared.deterministic = false;
        shared.cpu_share = 100;
        const auto alone = run(model.path, least, request);
        const auto together = run(model.path, shared, request);
        ASSERT_TRUE(alone) << model.name << ": " << alone.error().message();
        ASSERT_TRUE(together) << model.name << ": " << together.error().message();
        EXPECT_EQ(together->logits, alone->logits) << model.name << ": prompts are the GPU's";
        // The first token follows from the prompt; later ones may part where two are alike.
        EXPECT_EQ(together->greedy[0], alone->greedy[0]) << model.name;
    }
}

}  // namespace
}  // namespace granary::test

int main(int argc, char** argv) {
    using granary::test::options;
    ::testing::InitGoogleTest(&argc, argv);
    for (const granary::gpu::FoundDevice& device : granary::gpu::found_devices()) {
        if (!device.usable()) {
            options().reason += device.name + ": " + device.note + "; ";
        } else if (device.id != "host" && options().device.empty()) {
            options().device = device.id;
            options().emulated = device.name.find("Emulated") != std::string::npos;
        }
    }
    options().reason += "no GPU that this build can use";
    std::vector<std::string> folders;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--device" && i + 1 < argc)
            options().device = argv[++i];
        else
            folders.emplace_back(argv[i]);
    }
    if (!folders.empty()) options().folders = folders;
    return RUN_ALL_TESTS();
}
