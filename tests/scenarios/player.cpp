// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/scenarios/player.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <numeric>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"
#include "tests/unpacked.h"

namespace granary::test {
namespace {

std::string read_all(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

bool number(const std::string& word, uint64_t& value) {
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return false;
    value = std::stoull(word);
    return true;
}

std::string differs(const std::string& what, const std::string& found) {
    return what + " is " + found;
}

const char* finish_name(Finish finish) {
    const char* const names[] = {"answer-ended", "token-limit", "context-full", "stopped"};
    return names[static_cast<size_t>(finish)];
}

uint64_t kv_granules(const Engine& engine, uint64_t cells) {
    const Plan& plan = engine.plan();
    const uint64_t step = kv_layout(engine.model(), plan.kv_format).step_bytes;
    return divide_up(steps_of(cells) * step, plan.granule_bytes);
}

}  // namespace

bool Player::Outcome::operator==(const Outcome& other) const {
    return text == other.text && numbers.argmax == other.numbers.argmax &&
           numbers.greedy == other.numbers.greedy && numbers.logits == other.numbers.logits;
}

std::string Player::unexpected() const {
    return error_ ? "refused: " + error_->message() : "";
}

std::string Player::play(const ScriptLine& line) {
    const Words& words = line.words;
    const bool expects_refusal = words[0] == "expect" && words.size() > 1 && words[1] == "refused";
    if (error_ && !expects_refusal) return unexpected();
    if (words[0] == "model") return model(words);
    if (path_.empty()) return "a scenario begins with its model";
    if (words[0] == "open") return open(words);
    if (!engine_ && !expects_refusal) return "no engine is open";
    if (words[0] == "apply") return apply(words);
    if (words[0] == "conversation" || words[0] == "drop") return conversation(words);
    if (words[0] == "ask") return ask(words);
    if (words[0] == "compute") return compute(words);
    if (words[0] == "expect") return expect(words);
    if (words[0] == "remember" && words.size() == 2) {
        remembered_[words[1]] = outcome_;
        return "";
    }
    return "this line is not known";
}

std::string Player::always() const {
    const auto bytes = engine_->bytes();
    if (std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}) != engine_->plan().budget_bytes)
        return "the owners' bytes do not add up to the budget";
    if (engine_->driver_allocations_after_load() != 0) return "the driver was asked for memory";
    return "";
}

// ---- actions

std::string Player::model(const Words& words) {
    if (words.size() != 2) return "model NAME";
    if (words[1] == "starter") {
        path_ = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
    } else if (words[1] == "micro-qwen3moe") {
        path_ = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";
    } else if (words[1] == "micro-qwen35moe") {
        folder_.emplace();
        path_ = folder_->file("model.gguf");
        write_file(path_,
                   unpacked_planes(GRANARY_TEST_DATA "/micro/micro-qwen35moe.gguf.planes.gz"));
    } else {
        return "no such model";
    }
    return "";
}

std::string Player::settings_from(const Words& words, size_t first, Settings& settings) {
    for (size_t i = first; i < words.size(); ++i) {
        const size_t equals = words[i].find('=');
        if (equals == std::string::npos) return words[i] + " is not NAME=VALUE";
        const std::string name = words[i].substr(0, equals), value = words[i].substr(equals + 1);
        // Last, since what is smallest depends on all others.
        if (name == "vram-budget") continue;
        if (auto set = settings.set(name, value); !set) return set.error().message();
    }
    for (size_t i = first; i < words.size(); ++i) {
        if (!words[i].starts_with("vram-budget=")) continue;
        auto bytes = budget(words[i].substr(12), settings);
        if (!bytes) return bytes.error().message();
        settings.vram_budget = *bytes;
    }
    return "";
}

Result<uint64_t> Player::budget(const std::string& value, Settings settings) const {
    const bool smallest = value.starts_with("smallest");
    if (!smallest && value != "all") return parse_bytes(value);
    settings.vram_budget = 1 << 30;
    EngineOptions options;
    options.settings = settings;
    auto engine = Engine::open(path_, options);
    if (!engine) return tl::unexpected(engine.error());
    const Planner planner = (*engine)->planner();
    uint64_t all = (*engine)->plan().budget_bytes;
    if (!smallest) return all;
    // Between what is refused and what is admitted, less than any granule apart.
    uint64_t refused = 0;
    while (all - refused > 4096) {
        settings.vram_budget = (refused + all) / 2;
        (planner.plan(settings) ? all : refused) = settings.vram_budget;
    }
    return static_cast<uint64_t>(static_cast<double>(all) *
                                 (value == "smallest" ? 1.0 : std::stod(value.substr(9))));
}

std::string Player::open(const Words& words) {
    EngineOptions options;
    options.settings.device = "host";  // unless the script names another
    if (const std::string wrong = settings_from(words, 1, options.settings); !wrong.empty())
        return wrong;
    engine_.reset();
    conversations_.clear();
    log_.clear();
    current_ = "";
    options.log = [this](LogLevel, std::string_view line) {
        log_.emplace_back(line);
        if (echo) std::cout << "    " << line << "\n";
    };
    auto opened = Engine::open(path_, options);
    if (!opened) {
        error_ = opened.error();
        return "";
    }
    engine_ = std::move(*opened);
    return always();
}

std::string Player::apply(const Words& words) {
    Settings settings = engine_->plan().settings;
    if (const std::string wrong = settings_from(words, 1, settings); !wrong.empty()) return wrong;
    if (auto applied = engine_->apply(settings); !applied) error_ = applied.error();
    return always();
}

std::string Player::conversation(const Words& words) {
    if (words.size() != 2) return words[0] + " NAME";
    if (words[0] == "conversation") {
        current_ = words[1];
        return "";
    }
    const auto found = conversations_.find(words[1]);
    if (found == conversations_.end()) return "no such conversation";
    engine_->drop_conversation(found->second.id);
    conversations_.erase(found);
    return always();
}

std::string Player::text_of(uint32_t tokens, size_t seed) const {
    std::string story = read_all(GRANARY_RESOURCES "/welcome/tales-from-mill-hill.txt");
    std::rotate(story.begin(), story.begin() + static_cast<ptrdiff_t>(seed * 997 % story.size()),
                story.end());
    const auto count = [&](const std::string& text) {
        return engine_->tokenizer()->encode(text, true).size();
    };
    std::string text;
    while (count(text) < tokens) text += story;
    size_t short_enough = 0, too_long = text.size() + 1;
    while (too_long - short_enough > 1) {
        const size_t middle = (short_enough + too_long) / 2;
        (count(text.substr(0, middle)) <= tokens ? short_enough : too_long) = middle;
    }
    text.resize(short_enough);
    while (count(text) < tokens) text += " a";  // a token of its own everywhere
    return text;
}

std::string Player::ask(const Words& words) {
    Conversation& conversation = conversations_[current_];
    if (conversation.id == 0) {
        auto id = engine_->create_conversation();
        if (!id) return id.error().message();
        conversation.id = *id;
    }
    size_t at = 2;
    uint64_t tokens = 0, answer = 16, layer = 0, chunk = 0, stop_after = UINT64_MAX;
    if (words.size() > 2 && number(words[1], tokens) && words[2] == "tokens") {
        conversation.text +=
            text_of(static_cast<uint32_t>(tokens), conversation.text.size() + conversation.id);
        at = 3;
    } else if (words.size() > 2 && words[1] == "file") {
        conversation.text += read_all(GRANARY_RESOURCES "/" + words[2]);
        at = 3;
    } else if (words.size() > 1 && words[1] != "again") {
        conversation.text += words[1];
    } else if (words.size() < 2) {
        return "ask N tokens | file NAME | \"TEXT\" | again";
    }
    for (; at < words.size(); at += 2) {
        const Words rest(words.begin() + static_cast<ptrdiff_t>(at), words.end());
        if (rest.size() >= 2 && rest[0] == "answer" && number(rest[1], answer)) continue;
        if (rest.size() >= 7 && rest[0] == "stop" && rest[1] == "in" && rest[2] == "layer" &&
            number(rest[3], layer) && rest[4] == "of" && rest[5] == "chunk" &&
            number(rest[6], chunk)) {
            at += 5;
            continue;
        }
        if (rest.size() >= 4 && rest[0] == "stop" && rest[1] == "after" &&
            number(rest[2], stop_after) && rest[3] == "answered") {
            at += 2;
            continue;
        }
        return "ask .. [answer N] [stop in layer L of chunk C] [stop after N answered]";
    }
    Request request;
    request.use_raw = true;
    request.raw = conversation.text;
    request.max_tokens = static_cast<uint32_t>(answer);
    schedule_standing_ = {
        0, 0, static_cast<uint32_t>(kv_granules(*engine_, engine_->cells(conversation.id)))};
    StopSignal stop;
    uint64_t layers = 0, pieces = 0;
    const uint64_t stop_layer = chunk ? (chunk - 1) * engine_->model().layers + layer : UINT64_MAX;
    Listener listener;
    outcome_ = {};
    listener.on_text = [&](std::string_view piece) {
        outcome_.text += piece;
        if (++pieces >= stop_after) stop.request();
    };
    listener.on_progress = [&](uint32_t, uint32_t, double) {
        if (++layers >= stop_layer) stop.request();
    };
    auto report = engine_->answer(conversation.id, request, listener, stop);
    if (!report) {
        error_ = report.error();
        return always();
    }
    report_ = *report;
    schedule_from_ = report->kept_tokens;
    schedule_total_ = report->prompt_tokens;
    return always();
}

std::string Player::compute(const Words& words) {
    uint64_t tokens = 0, greedy = 0;
    if (words.size() != 5 || !number(words[1], tokens) || words[2] != "tokens" ||
        words[3] != "greedy" || !number(words[4], greedy))
        return "compute N tokens greedy M";
    LogitsRequest request;
    request.tokens = engine_->tokenizer()->encode(text_of(static_cast<uint32_t>(tokens), 0), true);
    request.positions = {static_cast<uint32_t>(tokens - 1)};
    request.greedy = static_cast<uint32_t>(greedy);
    auto result = engine_->logits(request);
    if (!result) {
        error_ = result.error();
        return always();
    }
    outcome_ = {"", std::move(*result)};
    schedule_standing_ = {};
    schedule_from_ = 0;
    schedule_total_ = static_cast<uint32_t>(tokens);
    return always();
}

// ---- expectations

uint64_t Player::log_count(const std::string& text) const {
    return static_cast<uint64_t>(std::count_if(log_.begin(), log_.end(), [&](const auto& line) {
        return line.find(text) != std::string::npos;
    }));
}

std::string Player::expect_shrinks() const {
    const Planner planner = engine_->planner();
    const Plan& plan = engine_->plan();
    const auto schedule =
        planner.schedule(plan, schedule_standing_, schedule_from_, schedule_total_);
    if (!schedule) return schedule.error().message();
    DeviceFacts card = planner.device();
    card.face = gpu::Face::card;
    const auto fits = [&](uint32_t chunk, uint32_t from) {
        const uint64_t loan =
            divide_up(loan_layout(engine_->model(), card, chunk).bytes, plan.granule_bytes);
        return loan + kv_granules(*engine_, std::min(from + chunk, schedule_total_)) <=
               plan.expert_range - plan.floor;
    };
    std::vector<std::string> shrinks;
    for (const std::string& line : log_)
        if (line.starts_with("loan shrunk")) shrinks.push_back(line);
    if (schedule->size() < 2) return "the plan has a single chunk size";
    if (shrinks.size() < schedule->size() - 1)
        return "the log has " + std::to_string(shrinks.size()) + " shrinks, the plan " +
               std::to_string(schedule->size() - 1);
    for (size_t i = 1; i < schedule->size(); ++i) {
        const auto& [from, chunk] = (*schedule)[i];
        const std::string line = "loan shrunk from " + std::to_string((*schedule)[i - 1].chunk) +
                                 " to " + std::to_string(chunk) + " tokens";
        const std::string& found = shrinks[shrinks.size() - (schedule->size() - 1) + i - 1];
        if (!found.starts_with(line)) return "planned: " + line + ", logged: " + found;
        if (!fits(chunk, from)) return "chunk " + std::to_string(chunk) + " leaves K/V no room";
        // No larger one would have done.
        for (uint32_t larger = (*schedule)[i - 1].chunk; larger > chunk;
             larger = smaller_chunk(larger))
            if (fits(larger, from))
                return "at " + std::to_string(from) + " tokens a chunk of " +
                       std::to_string(larger) + " fits beside K/V, and is shrunk to " +
                       std::to_string(chunk);
    }
    return "";
}

std::string Player::expect(const Words& words) {
    const std::string what = words.size() > 1 ? words[1] : "";
    const std::string value = words.size() > 2 ? words[2] : "";
    uint64_t n = 0;
    const auto equal = [&](uint64_t found) {
        return number(value, n) && words.size() == 3 && found == n
                   ? ""
                   : differs(what, std::to_string(found));
    };
    if (what == "refused") {
        if (!error_) return "nothing was refused";
        const std::string message = error_->message();
        const bool right =
            error_->kind == ErrorKind::refused && message.find(value) != std::string::npos;
        error_.reset();
        return right ? "" : differs("the refusal", message);
    }
    if (what == "tokens" && words.size() == 4 && value == "as") {
        if (!remembered_.contains(words[3])) return "nothing is remembered as " + words[3];
        if (outcome_.text.empty() && outcome_.numbers.argmax.empty()) return "there are no tokens";
        return outcome_ == remembered_[words[3]] ? "" : "other tokens came out";
    }
    if (what == "log" && words.size() >= 3) {
        const uint64_t found = log_count(value);
        const bool counted = words.size() == 5 && number(words[3], n) && words[4] == "times";
        if (!counted && words.size() != 3) return "expect log \"TEXT\" [N times]";
        return (counted ? found == n : found > 0)
                   ? ""
                   : "it is there " + std::to_string(found) + " times";
    }
    if (what == "no" && value == "log" && words.size() == 4)
        return log_count(words[3]) == 0 ? "" : "it is there";
    if (what == "loan" && value == "shrinks") return expect_shrinks();
    if (what == "loan" && value == "stays")
        return log_count("loan shrunk") == 0 ? "" : "it shrinks";
    if (what == "bytes" && words.size() == 4) {
        const auto bytes = parse_bytes(words[3]);
        for (int i = 0; i < kOwners; ++i)
            if (owner_name(static_cast<Owner>(i)) == value && bytes)
                return engine_->bytes()[i] == *bytes
                           ? ""
                           : differs(value, format_bytes(engine_->bytes()[i]));
        return "expect bytes CLASS SIZE";
    }
    if (what == "driver" && value == "allocations" && words.size() == 4)
        return number(words[3], n) && engine_->driver_allocations_after_load() == n ? "" : "not so";
    if (what == "budget") {
        const auto bytes = parse_bytes(value);
        const uint64_t found = engine_->plan().budget_bytes;
        return bytes && found == *bytes ? "" : differs(what, format_bytes(found));
    }
    if (what == "chunk") return equal(engine_->plan().chunk);
    if (what == "kept") return equal(report_.kept_tokens);
    if (what == "read") return equal(report_.read_tokens);
    if (what == "answered") return equal(report_.answer_tokens);
    if (what == "cells") return equal(engine_->cells(conversations_[current_].id));
    const std::vector<ScheduledChunks>& chunks = report_.chunks;
    if (what == "first-chunk") return equal(chunks.empty() ? 0 : chunks.front().chunk);
    if (what == "last-chunk") return equal(chunks.empty() ? 0 : chunks.back().chunk);
    if (what == "finish")
        return value == finish_name(report_.finish) ? ""
                                                    : differs(what, finish_name(report_.finish));
    return "this expectation is not known";
}

}  // namespace granary::test
