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
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "gpu/cuda/device.h"
#include "gpu/found_devices.h"
#include "tests/engine/fixture.h"
#include "tests/engine/small_model.h"
#include "tests/gguf/gguf_builder.h"
#include "tests/gpu/card/name.h"

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

// Steps without a share ask for nothing, which nobody must take for what later ones ask.
TEST_F(GpuModel, TheProcessorsShareBeginsAndEndsBetweenAnswers) {
    // Experts of several granules, so that some are missed.
    SmallModel shape;
    shape.experts = 16, shape.hidden = 128, shape.ffn = 384;
    shape.heads = shape.kv_heads = 8, shape.head_dim = 64;
    TempDir folder;
    const Model model{"small", shape.save(folder, "small.gguf"), {}};
    EngineOptions engine_options;
    engine_options.settings = least_memory(model);
    Settings shared = engine_options.settings;
    shared.deterministic = false;
    shared.cpu_share = 100;
    auto engine = Engine::open(model.path, engine_options);
    ASSERT_TRUE(engine) << engine.error().message();
    const auto id = (*engine)->create_conversation();
    ASSERT_TRUE(id) << id.error().message();
    Request request;
    request.use_raw = true;
    request.max_tokens = 4;
    for (const Settings& settings :
         {engine_options.settings, shared, engine_options.settings, shared}) {
        const auto again = (*engine)->apply(settings);
        ASSERT_TRUE(again) << again.error().message();
        EXPECT_FALSE(*again);
        request.raw += "Is there more to say of it? ";
        const auto report = (*engine)->answer(*id, request, {}, {});
        ASSERT_TRUE(report) << report.error().message();
    }
    EXPECT_GT((*engine)->telemetry().counters.expert_misses.load(), 0u);
}

// The driver of an engine's device, whose functions fail at a certain call.
class FaultyDriver {
  public:
    // For EngineOptions::wrap_device.
    std::unique_ptr<gpu::Device> take(std::unique_ptr<gpu::Device> device) {
        auto* const memory = dynamic_cast<gpu::cuda::GpuMemory*>(device.get());
        if (!memory) return device;
        // Opened by the engine for itself, as it were without this test.
        driver_ = std::const_pointer_cast<gpu::cuda::Driver>(memory->context().shared_driver());
        driver_->interceptor = [this](std::string_view name) {
            const uint64_t call = calls_[std::string(name)]++;
            return name == failing_ && call == fails_at_ ? gpu::cuda::Status{1} : 0;
        };
        return device;
    }
    bool there() const { return driver_ != nullptr; }
    // Of each function, since the last begin.
    const std::map<std::string, uint64_t>& calls() const { return calls_; }
    // From here on the call number `at` of `name` fails, if any.
    void begin(std::string name = {}, uint64_t at = 0) {
        calls_.clear();
        failing_ = std::move(name);
        fails_at_ = at;
    }

  private:
    std::shared_ptr<gpu::cuda::Driver> driver_;
    std::map<std::string, uint64_t> calls_;
    std::string failing_;
    uint64_t fails_at_ = 0;
};

// Experts are brought by the processor, which kernels wait for: whatever call fails, no kernel
// waits for ever, none reads what never came, and the next request is answered as if nothing had
// been.
TEST_F(GpuModel, AFailedDriverCallEndsItsRequestAndTheEngineGoesOn) {
    const Model& model = models_.front();
    FaultyDriver driver;
    EngineOptions engine_options;
    engine_options.settings = least_memory(model);
    engine_options.settings.page_lock = 0;
    engine_options.wrap_device = [&](std::unique_ptr<gpu::Device> device) {
        return driver.take(std::move(device));
    };
    std::unique_ptr<Engine> engine;
    const auto open = [&] {
        engine.reset();
        auto opened = Engine::open(model.path, engine_options);
        EXPECT_TRUE(opened) << opened.error().message();
        if (opened) engine = std::move(*opened);
        return engine != nullptr;
    };
    ASSERT_TRUE(open());
    if (!driver.there()) GTEST_SKIP() << "skipped: no driver is below this device";
    Request request;
    request.use_raw = true;
    request.raw = "Who keeps it?";
    request.max_tokens = 2;
    std::string text;
    const auto ask = [&]() -> Result<Report> {
        const auto id = engine->create_conversation();
        if (!id) return tl::unexpected(id.error());
        text.clear();
        Listener listener;
        listener.on_text = [&](std::string_view piece) { text += piece; };
        auto report = engine->answer(*id, request, listener, {});
        engine->drop_conversation(*id);
        return report;
    };
    ASSERT_TRUE(ask());  // so that every range was needed before
    driver.begin();
    const auto sound = ask();
    ASSERT_TRUE(sound) << sound.error().message();
    const std::string expected = text;
    const std::map<std::string, uint64_t> calls = driver.calls();
    ASSERT_TRUE(calls.contains("cuGraphLaunch") || calls.contains("hipGraphLaunch"));
    size_t failed = 0;
    for (const auto& [name, count] : calls) {
        SCOPED_TRACE(name + " of " + std::to_string(count) + " calls");
        driver.begin(name, count / 2);
        const auto broken = ask();
        driver.begin();
        if (!broken) {
            EXPECT_EQ(broken.error().kind, ErrorKind::device) << broken.error().message();
            ++failed;
        }
        const auto bytes = engine->bytes();
        EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}),
                  engine->plan().budget_bytes);
        EXPECT_EQ(engine->driver_allocations_after_load(), 0u);
        // In the least memory a granule that the driver keeps is one too many.
        if (engine->bytes()[static_cast<int>(Owner::quarantined)] > 0) {
            ASSERT_TRUE(open());
        }
        auto whole = ask();
        // What failed after a request had waited for the device last is told by the next one.
        if (!whole && whole.error().kind == ErrorKind::device) whole = ask();
        ASSERT_TRUE(whole) << whole.error().message();
        EXPECT_EQ(text, expected);
    }
    EXPECT_GT(failed, calls.size() / 2);
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
            options().emulated = granary::test::card::is_emulated(device.name);
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
