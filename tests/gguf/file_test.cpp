// SPDX-License-Identifier: GPL-3.0-or-later
// Sound files: everything that was written is read back.
#include "engine/gguf/file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/gguf/gguf_builder.h"

namespace granary::gguf {
namespace {

using test::GgufBuilder;
using test::TempDir;

std::shared_ptr<const File> open(const std::string& path) {
    auto file = File::open(path);
    if (!file) {
        ADD_FAILURE() << file.error().message();
        return nullptr;
    }
    return *file;
}

GgufBuilder every_kind() {
    GgufBuilder builder;
    builder.put("a.u8", uint8_t{200})
        .put("a.i8", int8_t{-100})
        .put("a.u16", uint16_t{60000})
        .put("a.i16", int16_t{-30000})
        .put("a.u32", uint32_t{4000000000})
        .put("a.i32", int32_t{-2000000000})
        .put("a.i32.positive", int32_t{7})
        .put("a.f32", 0.1f)
        .put("a.bool", true)
        .put("a.string", "héllo")
        .put("a.u64", uint64_t{18000000000000000000u})
        .put("a.i64", int64_t{-9000000000000000000})
        .put("a.f64", 0.1)
        .put_array<int16_t>("l.i16", {-1, 2, -32768})
        .put_array<uint32_t>("l.u32", {1, 4000000000})
        .put_array<float>("l.f32", {0.5f, -2.0f})
        .put_array<double>("l.f64", {0.1})
        .put_array<std::string>("l.string", {"", "a", "bc"})
        .put_array<std::string>("l.empty", {})
        .put_raw("l.bool", 9, test::raw(7u) + test::raw(uint64_t{3}) + std::string("\1\0\1", 3));
    return builder;
}

TEST(GgufFile, ReadsEveryValueType) {
    for (const uint32_t version : {2u, 3u}) {
        const TempDir dir;
        GgufBuilder builder = every_kind();
        builder.version = version;
        builder.save(dir.file("a.gguf"));
        const auto file = open(dir.file("a.gguf"));
        ASSERT_TRUE(file);
        EXPECT_EQ(file->version(), version);
        EXPECT_EQ(file->metadata().size(), 20u);
        EXPECT_EQ(file->metadata()[0].first, "a.u8");
        EXPECT_EQ(file->metadata()[19].first, "l.bool");
        EXPECT_EQ(file->get_unsigned("a.u8").value(), 200u);
        EXPECT_EQ(std::get<int64_t>(*file->find("a.i8")), -100);
        EXPECT_EQ(file->get_unsigned("a.u16").value(), 60000u);
        EXPECT_EQ(std::get<int64_t>(*file->find("a.i16")), -30000);
        EXPECT_EQ(file->get_unsigned("a.u32").value(), 4000000000u);
        EXPECT_EQ(std::get<int64_t>(*file->find("a.i32")), -2000000000);
        EXPECT_EQ(file->get_unsigned("a.i32.positive").value(), 7u);
        EXPECT_EQ(file->get_real("a.f32").value(), static_cast<double>(0.1f));
        EXPECT_EQ(file->get_real("a.i8").value(), -100.0);
        EXPECT_EQ(file->find_bool("a.bool").value(), true);
        EXPECT_EQ(file->get_string("a.string").value(), "héllo");
        EXPECT_EQ(file->get_unsigned("a.u64").value(), 18000000000000000000u);
        EXPECT_EQ(std::get<int64_t>(*file->find("a.i64")), -9000000000000000000);
        EXPECT_EQ(file->get_real("a.f64").value(), 0.1);
        EXPECT_TRUE(file->tensors().empty());
    }
}

TEST(GgufFile, ReadsArraysInPlace) {
    const TempDir dir;
    every_kind().save(dir.file("a.gguf"));
    const auto file = open(dir.file("a.gguf"));
    ASSERT_TRUE(file);
    const Array& i16 = *file->get_array("l.i16").value();
    EXPECT_EQ(i16.kind(), Array::Kind::signed_integer);
    ASSERT_EQ(i16.size(), 3u);
    EXPECT_EQ(i16.signed_at(0), -1);
    EXPECT_EQ(i16.unsigned_at(1), 2u);
    EXPECT_EQ(i16.real_at(2), -32768.0);
    EXPECT_EQ(i16.signed_at(3), 0) << "past the end there is nothing";
    const Array& u32 = *file->get_array("l.u32").value();
    EXPECT_EQ(u32.unsigned_at(1), 4000000000u);
    EXPECT_EQ(u32.real_at(1), 4e9);
    const Array& f32 = *file->get_array("l.f32").value();
    EXPECT_EQ(f32.kind(), Array::Kind::real);
    EXPECT_EQ(f32.real_at(0), 0.5);
    EXPECT_EQ(f32.real_at(1), -2.0);
    EXPECT_EQ(file->get_array("l.f64").value()->real_at(0), 0.1);
    const Array& strings = *file->get_array("l.string").value();
    EXPECT_EQ(strings.kind(), Array::Kind::string);
    ASSERT_EQ(strings.size(), 3u);
    EXPECT_EQ(strings.string_at(0), "");
    EXPECT_EQ(strings.string_at(1), "a");
    EXPECT_EQ(strings.string_at(2), "bc");
    EXPECT_EQ(strings.string_at(3), "");
    EXPECT_EQ(file->get_array("l.empty").value()->size(), 0u);
    const Array& truth = *file->get_array("l.bool").value();
    EXPECT_EQ(truth.kind(), Array::Kind::boolean);
    EXPECT_EQ(truth.unsigned_at(0), 1u);
    EXPECT_EQ(truth.unsigned_at(1), 0u);
}

TEST(GgufFile, LookUpsTellAbsentFromWrong) {
    const TempDir dir;
    every_kind().save(dir.file("a.gguf"));
    const auto file = open(dir.file("a.gguf"));
    ASSERT_TRUE(file);
    EXPECT_EQ(file->find("no.such"), nullptr);
    EXPECT_EQ(file->find_unsigned("no.such").value(), std::nullopt);
    EXPECT_EQ(file->find_real("no.such").value(), std::nullopt);
    EXPECT_EQ(file->find_bool("no.such").value(), std::nullopt);
    EXPECT_EQ(file->find_string("no.such").value(), std::nullopt);
    for (const Error& error :
         {file->get_unsigned("no.such").error(), file->get_array("no.such").error(),
          file->get_string("no.such").error(), file->get_real("no.such").error()}) {
        EXPECT_EQ(error.kind, ErrorKind::invalid_file);
        EXPECT_NE(error.detail.find("no.such"), std::string::npos);
        EXPECT_NE(error.detail.find("a.gguf"), std::string::npos);
    }
    EXPECT_NE(file->get_unsigned("a.i8").error().detail.find("(-100), not an unsigned integer"),
              std::string::npos);
    EXPECT_FALSE(file->find_unsigned("a.f32"));
    EXPECT_FALSE(file->find_real("a.string"));
    EXPECT_FALSE(file->find_bool("a.u8"));
    EXPECT_FALSE(file->find_string("l.string"));
    EXPECT_FALSE(file->get_array("a.string"));
}

TEST(GgufFile, PlacesTensors) {
    const TempDir dir;
    GgufBuilder builder;
    builder.alignment = 64;
    builder.put("general.alignment", uint32_t{64})
        .tensor("scalar", {}, {5.0f})
        .tensor("row", {3}, {1, 2, 3})
        .tensor("cube", {2, 1, 2, 1}, {1, 2, 3, 4})
        .tensor("blocks", gpu::WeightType::q4_k, {512, 3}, std::string(864, 'x'));
    builder.save(dir.file("a.gguf"));
    const auto file = open(dir.file("a.gguf"));
    ASSERT_TRUE(file);
    ASSERT_EQ(file->tensors().size(), 4u);
    const Tensor* const scalar = file->tensor("scalar");
    ASSERT_NE(scalar, nullptr);
    EXPECT_EQ(scalar->dims, 0u);
    EXPECT_EQ(scalar->bytes, 4u);
    const Tensor* const row = file->tensor("row");
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->cols(), 3u);
    EXPECT_EQ(row->rows(), 1u);
    EXPECT_EQ(row->bytes, 12u);
    EXPECT_EQ(row->offset % 64, 0u);
    float values[3];
    std::memcpy(values, row->data, sizeof values);
    EXPECT_EQ(values[2], 3.0f);
    const Tensor* const cube = file->tensor("cube");
    ASSERT_NE(cube, nullptr);
    EXPECT_EQ(cube->dims, 4u);
    EXPECT_EQ(cube->shape[2], 2u);
    const Tensor* const blocks = file->tensor("blocks");
    ASSERT_NE(blocks, nullptr);
    EXPECT_EQ(blocks->bytes, 864u);
    EXPECT_EQ(blocks->data[863], std::byte{'x'});
    EXPECT_EQ(blocks->offset + blocks->bytes, file->total_bytes());
    EXPECT_EQ(file->tensor("nothing"), nullptr);
}

TEST(GgufFile, OpensTheFixtures) {
    for (const char* const name : {"micro/micro-qwen3moe", "quant/Q4_K_M"}) {
        const std::string base = std::string(GRANARY_TEST_DATA) + "/" + name;
        const auto file = open(base + ".gguf");
        ASSERT_TRUE(file);
        const auto numbers = nlohmann::json::parse(std::ifstream(base + ".json"));
        EXPECT_EQ(file->get_string("general.architecture").value(), "qwen3moe");
        EXPECT_EQ(file->get_array("tokenizer.ggml.tokens").value()->size(),
                  numbers.at("vocab").get<size_t>());
        const uint64_t layers = file->get_unsigned("qwen3moe.block_count").value();
        const uint64_t experts = file->get_unsigned("qwen3moe.expert_count").value();
        const Tensor* const up =
            file->tensor("blk." + std::to_string(layers - 1) + ".ffn_up_exps.weight");
        ASSERT_NE(up, nullptr);
        EXPECT_EQ(up->dims, 3u);
        EXPECT_EQ(up->shape[2], experts);
        uint64_t bytes = 0;
        for (const Tensor& tensor : file->tensors()) bytes += tensor.bytes;
        EXPECT_LT(bytes, file->total_bytes());
        EXPECT_GT(bytes, file->total_bytes() - 32768);
    }
}

TEST(GgufFile, OpensTheStarterModel) {
    const auto file = open(std::string(GRANARY_RESOURCES) + "/starter/starter-q4_k_m.gguf");
    ASSERT_TRUE(file);
    EXPECT_TRUE(file->get_string("tokenizer.chat_template"));
    bool mixed[2] = {};
    for (const Tensor& tensor : file->tensors()) {
        mixed[0] |= tensor.type == gpu::WeightType::q4_k;
        mixed[1] |= tensor.type == gpu::WeightType::q6_k;
    }
    EXPECT_TRUE(mixed[0] && mixed[1]);
}

TEST(GgufFile, StaysReadableWhenTheFileIsRemoved) {
    const TempDir dir;
    GgufBuilder().tensor("row", {3}, {1, 2, 3}).save(dir.file("a.gguf"));
    const auto file = open(dir.file("a.gguf"));
    ASSERT_TRUE(file);
    std::filesystem::remove(dir.file("a.gguf"));
    float value = 0;
    std::memcpy(&value, file->tensor("row")->data + 8, sizeof value);
    EXPECT_EQ(value, 3.0f);
}

}  // namespace
}  // namespace granary::gguf
