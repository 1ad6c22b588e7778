// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli: the engine without a window.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <new>

#include "engine/cli/bench.h"
#include "engine/cli/common.h"
#include "engine/cli/inspect.h"
#include "engine/cli/measure.h"
#include "engine/cli/plan.h"
#include "engine/cli/render_template.h"
#include "engine/cli/run.h"
#include "engine/cli/settings_options.h"
#include "engine/cli/suite.h"
#include "engine/cli/tokenize.h"
#include "granary/version.h"

namespace {

using namespace granary;

// The one thing that a signal handler may touch.
StopSignal* g_interrupt = nullptr;
// The first signal asks for an end with what there is, the second one ends the process.
void interrupt(int signal) {
    g_interrupt->request();
    std::signal(signal, SIG_DFL);
}

// Where one of the three is closed, the next file opened would get its number, and what is printed
// would go into a model or into the device's memory.
void keep_standard_files() {
    for (int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(number, F_GETFD) < 0)
            // Output that nobody can read is an error, errors that nobody can read are not.
            (void)open("/dev/null", number == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

// CLI11 reads -1 as a very large seed, and nothing at all as an option that was not given.
std::string whole_number(const std::string& text) {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    return digits ? "" : "a whole number is needed, not '" + text + "'";
}

}  // namespace

int main(int argc, char** argv) {
    const auto count = [](const std::string& text) { return whole_number(text); };
    CLI::App app("Granary: Mixture-of-Experts language models at long contexts", "granary-cli");
    app.set_version_flag("--version", version());
    app.require_subcommand(1);
    app.footer(
        "Exit codes: 0 done, 1 usage, 2 a file cannot be used, 3 refused (would not fit), "
        "4 memory or device failed, 130 interrupted.");
    int code = cli::kOk;
    StopSignal stop;
    std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error, not the end
    std::signal(SIGPIPE, SIG_DFL);  // a reader that has seen enough ends the writer too
    keep_standard_files();

    cli::RunOptions run_options;
    cli::SettingsOptions run_settings;
    CLI::App* run = app.add_subcommand("run", "Answer a prompt, about a document if one is given");
    run->add_option("MODEL", run_options.model, "GGUF file")->required();
    run->add_option("--file", run_options.document, "Document put before the question")
        ->type_name("DOC");
    run->add_option("--prompt", run_options.prompt, "The question")->type_name("TEXT");
    run->add_flag("--raw", run_options.raw, "Send the text as it is, without a chat template");
    run->add_option("-n", run_options.max_tokens, "Answer at most N tokens")
        ->check(count)
        ->type_name("N");
    run->add_option("--temp", run_options.sampling.temperature, "Temperature; 0 is greedy")
        ->check(CLI::Range(0.0f, 100.0f))
        ->type_name("T");
    run->add_option("--top-k", run_options.sampling.top_k, "Keep the K best tokens; 0 is all")
        ->check(count);
    run->add_option("--top-p", run_options.sampling.top_p, "Keep the best that reach P")
        ->check(CLI::Range(0.0f, 1.0f));
    run->add_option("--min-p", run_options.sampling.min_p, "Keep those of P times the best")
        ->check(CLI::Range(0.0f, 1.0f));
    run->add_option("--repeat-penalty", run_options.sampling.repeat_penalty, "1 is none")
        ->check(CLI::Range(0.1f, 10.0f));
    run->add_option("--seed", run_options.sampling.seed, "Of the draw")
        ->check(count)
        ->type_name("S");
    run->add_option("--conversation", run_options.conversation,
                    "Go on with the conversation in this file, if it exists, and save it there")
        ->type_name("FILE");
    run->add_flag("-v,--verbose", run_options.verbose, "Say on stderr what memory did");
    run_settings.add_to(*run);
    run->callback([&] {
        auto settings = run_settings.settings();
        if (!settings) {
            code = cli::report_error(settings.error(), std::cerr);
            return;
        }
        run_options.settings = *settings;
        // The other subcommands have nothing to keep: there a signal ends the process as usual.
        g_interrupt = &stop;
        std::signal(SIGINT, interrupt);
        std::signal(SIGTERM, interrupt);
        code = cli::run(run_options, std::cout, std::cerr,
                        {isatty(STDOUT_FILENO) != 0, isatty(STDERR_FILENO) != 0}, stop);
    });

    cli::TokenizeOptions tokenize_options;
    CLI::App* tokenize = app.add_subcommand("tokenize", "Token ids of a text");
    tokenize->add_option("MODEL", tokenize_options.model, "GGUF file, a vocabulary is enough")
        ->required();
    auto* text = tokenize->add_option("--text", tokenize_options.text, "The text");
    auto* file = tokenize->add_option("--file", tokenize_options.file, "A file with the text");
    text->excludes(file);
    tokenize->add_flag("--special", tokenize_options.special,
                       "Parse names of special tokens, and add BOS where the model asks for it");
    tokenize->add_flag("--json", tokenize_options.json, "{\"ids\":[..]}");
    tokenize->callback([&] { code = cli::tokenize(tokenize_options, std::cout, std::cerr); });

    cli::TemplateOptions template_options;
    CLI::App* render = app.add_subcommand("template", "Render a chat template");
    auto* model = render->add_option("MODEL", template_options.model, "GGUF file");
    auto* source = render->add_option("--template", template_options.template_file,
                                      "Plain Jinja text instead");
    model->excludes(source);
    render->add_option("--context", template_options.context_file, "JSON object")->required();
    render->callback([&] { code = cli::render_template(template_options, std::cout, std::cerr); });

    cli::LogitsOptions logits_options;
    cli::SettingsOptions logits_settings;
    CLI::App* logits = app.add_subcommand("logits", "Logits at positions, as JSON");
    logits->add_option("MODEL", logits_options.model, "GGUF file")->required();
    logits->add_option("--tokens", logits_options.tokens_file, "JSON list of ids")->required();
    logits->add_option("--positions", logits_options.positions, "0,1,..")
        ->delimiter(',')
        ->check(count);
    logits->add_option("--greedy", logits_options.greedy, "Go on with N greedy tokens")
        ->check(count);
    const std::map<std::string, gpu::Arithmetic> arithmetics{{"f32", gpu::Arithmetic::f32},
                                                             {"fast", gpu::Arithmetic::fast}};
    logits->add_option("--arithmetic", logits_options.arithmetic, "f32 or fast (default)")
        ->transform(CLI::CheckedTransformer(arithmetics));
    logits->add_option("--out", logits_options.out_file, "JSON file to write")->required();
    logits_settings.add_to(*logits);
    logits->callback([&] {
        auto settings = logits_settings.settings();
        if (!settings) {
            code = cli::report_error(settings.error(), std::cerr);
            return;
        }
        logits_options.settings = *settings;
        code = cli::logits(logits_options, std::cerr);
    });

    cli::PlanOptions plan_options;
    cli::SettingsOptions plan_settings;
    CLI::App* plan = app.add_subcommand("plan", "What the engine would do, without loading");
    plan->add_option("MODEL", plan_options.model, "GGUF file, of which the header is read")
        ->required();
    plan->add_option("--prompt-tokens", plan_options.prompt_tokens,
                     "Length of the prompt to plan for; as long as the context unless given")
        ->check(count)
        ->type_name("N");
    plan->add_option("--device-profile", plan_options.device_profile,
                     "Plan for the device of this file instead of this machine's")
        ->type_name("FILE");
    plan->add_flag("--json", plan_options.json, "As JSON");
    plan_settings.add_to(*plan);
    plan->callback([&] {
        auto settings = plan_settings.settings();
        if (!settings) {
            code = cli::report_error(settings.error(), std::cerr);
            return;
        }
        plan_options.settings = *settings;
        code = cli::plan(plan_options, std::cout, std::cerr);
    });

    std::string inspect_model;
    bool inspect_json = false;
    CLI::App* inspect = app.add_subcommand("inspect", "What a model file holds");
    inspect->add_option("MODEL", inspect_model, "GGUF file")->required();
    inspect->add_flag("--json", inspect_json, "As JSON");
    inspect->callback(
        [&] { code = cli::inspect(inspect_model, inspect_json, std::cout, std::cerr); });

    cli::BenchOptions bench_options;
    cli::SettingsOptions bench_settings;
    CLI::App* bench = app.add_subcommand("bench", "Reading and answering speed");
    bench->add_option("MODEL", bench_options.model, "GGUF file")->required();
    auto* prompt_tokens =
        bench->add_option("-p", bench_options.prompt_tokens, "Tokens to read (512)")->check(count);
    auto* answer_tokens =
        bench->add_option("-n", bench_options.decode_tokens, "Tokens to answer (128)")
            ->check(count);
    auto* repeat = bench->add_option("--repeat", bench_options.repeat, "Runs; medians are given")
                       ->check(count);
    auto* depth = bench
                      ->add_option("--depth", bench_options.depth,
                                   "Tokens that are read before anything is measured (0)")
                      ->check(count);
    auto* sweep =
        bench
            ->add_option(
                "--sweep", bench_options.sweep,
                "Depths, rising: a table of reading from one to the next and answering there")
            ->delimiter(',')
            ->check(count);
    auto* stops = bench
                      ->add_option("--stops", bench_options.stops,
                                   "Times to read on by -p tokens and stop in the midst (0)")
                      ->check(count);
    for (auto* other : {prompt_tokens, repeat, depth, stops}) sweep->excludes(other);
    auto* profile_out =
        bench
            ->add_option("--device-profile-out", bench_options.device_profile,
                         "Write what the planner must know of this device, with its rates")
            ->type_name("FILE");
    bench
        ->add_option("--trace", bench_options.trace,
                     "Write map frames and counters of the last run, to be shown again")
        ->type_name("FILE");
    std::string suite_name;
    std::vector<uint32_t> suite_rows;
    auto* suite =
        bench
            ->add_option("--suite", suite_name,
                         "longctx: contexts to 522,000 tokens on consumer budgets, row by row")
            ->check(CLI::IsMember({"longctx"}));
    for (auto* other : {prompt_tokens, answer_tokens, repeat, depth, stops, sweep, profile_out})
        suite->excludes(other);
    bench->add_option("--rows", suite_rows, "Rows of the suite to run (all; 0: none)")
        ->delimiter(',')
        ->check(count)
        ->needs(suite);
    bench->add_flag("--json", bench_options.json, "As JSON");
    bench_settings.add_to(*bench);
    // Its rows decide on these.
    for (const char* name : {"--max-context", "--prefill", "--kv", "--vram-budget"})
        suite->excludes(bench->get_option(name));
    bench->callback([&] {
        auto settings = bench_settings.settings();
        if (!settings) {
            code = cli::report_error(settings.error(), std::cerr);
            return;
        }
        bench_options.settings = *settings;
        if (suite_name.empty())
            code = cli::bench(bench_options, std::cout, std::cerr);
        else
            code = cli::long_context_suite({bench_options.model, suite_rows, bench_options.json,
                                            bench_options.trace, *settings},
                                           std::cout, std::cerr);
    });

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? cli::kOk : cli::kUsage;
    } catch (const std::bad_alloc&) {
        return cli::report_error({ErrorKind::out_of_memory, "main memory ran out", "",
                                  "Close other programs or choose smaller settings"},
                                 std::cerr);
    } catch (const std::exception& error) {
        return cli::report_error(
            {ErrorKind::internal, "a fault of this program ended the work", error.what(), ""},
            std::cerr);
    }
    if (!std::cout.flush())
        return cli::report_error({ErrorKind::device, "the output cannot be written",
                                  "standard output takes no more", ""},
                                 std::cerr);
    return code;
}
