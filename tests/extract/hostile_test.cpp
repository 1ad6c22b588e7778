// SPDX-License-Identifier: GPL-3.0-or-later
// Documents and readers that misbehave: each ends in an error with a reason, in bounded time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "engine/extract/client.h"
#include "pdf_writer.h"
#include "scratch_folder.h"

namespace granary {
namespace {

using namespace std::chrono_literals;
using test::PdfOptions;
using test::ScratchFolder;
using test::write_pdf;
using Clock = std::chrono::steady_clock;

Error error_of(const std::string& file, const std::string& extractor = GRANARY_EXTRACT,
               std::chrono::milliseconds patience = 20s) {
    const StopSignal stop;
    const auto document = extract_document(extractor, file, stop, patience);
    if (document) return {ErrorKind::internal, "no error", document->text.substr(0, 80), ""};
    return document.error();
}

#define EXPECT_ERROR(error, expected_kind, word)                             \
    do {                                                                     \
        const Error e = (error);                                             \
        EXPECT_EQ(e.kind, expected_kind) << e.message();                     \
        EXPECT_NE(e.message().find(word), std::string::npos) << e.message(); \
    } while (false)

TEST(HostileDocument, NotAFile) {
    const ScratchFolder folder;
    const std::string pipe = folder.path("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_ERROR(error_of(pipe), ErrorKind::io, "a pipe");
    EXPECT_ERROR(error_of(folder.path("")), ErrorKind::io, "a folder");
    EXPECT_ERROR(error_of("/dev/zero"), ErrorKind::io, "a device");
    EXPECT_ERROR(error_of(folder.path("gone.txt")), ErrorKind::io, "No such file");
    EXPECT_ERROR(error_of(""), ErrorKind::io, "No such file");
}

TEST(HostileDocument, NothingToRead) {
    const ScratchFolder folder;
    EXPECT_ERROR(error_of(folder.write("a.txt", "")), ErrorKind::invalid_file, "empty");
    EXPECT_ERROR(error_of(folder.write("b.txt", " \n\t\n")), ErrorKind::unsupported, "white space");
    EXPECT_ERROR(error_of(folder.write("c.pdf", write_pdf({"", ""}))), ErrorKind::unsupported,
                 "no text");
}

TEST(HostileDocument, TooLarge) {
    const ScratchFolder folder;
    const std::string file = folder.write("sparse.txt", "x");
    std::filesystem::resize_file(file, uintmax_t{3} << 30);
    EXPECT_ERROR(error_of(file), ErrorKind::refused, "at most 512 MiB");
}

TEST(HostileDocument, EncryptedPdf) {
    const ScratchFolder folder;
    const std::string secret(64, '5');
    const std::string trailer =
        "/Encrypt<</Filter/Standard/V 1/R 2/O<" + secret + ">/U<" + secret +
        ">/P -4>>/ID[<00112233445566778899aabbccddeeff><00112233445566778899aabbccddeeff>]";
    EXPECT_ERROR(error_of(folder.write("e.pdf", write_pdf({"Secret."}, {.trailer = trailer}))),
                 ErrorKind::unsupported, "password");
}

TEST(HostileDocument, BrokenPdf) {
    const ScratchFolder folder;
    EXPECT_ERROR(error_of(folder.write("a.pdf", "%PDF-1.7\nnothing more")), ErrorKind::invalid_file,
                 "damaged");
    const std::string whole = write_pdf({"Text."});
    EXPECT_ERROR(error_of(folder.write("b.pdf", whole.substr(0, 60))), ErrorKind::invalid_file,
                 "damaged");
}

TEST(HostileDocument, PageCountsThatLie) {
    const ScratchFolder folder;
    for (const char* const count : {"2000000000", "-5", "99999999999999999999", "(x)"}) {
        PdfOptions options;
        options.count = count;
        const auto start = Clock::now();
        const StopSignal stop;
        const auto document = extract_document(
            GRANARY_EXTRACT, folder.write("c.pdf", write_pdf({"Text."}, options)), stop);
        EXPECT_LT(Clock::now() - start, 20s) << count;
        if (document) {
            EXPECT_EQ(document->prompt_text(), "Text.") << count;
        } else {
            EXPECT_FALSE(document.error().detail.empty()) << count;
        }
    }
}

// The page tree contains itself.
TEST(HostileDocument, EndlessPageTree) {
    const ScratchFolder folder;
    std::string pdf = write_pdf({"Text."});
    const size_t kids = pdf.find("/Kids[10 0 R");
    ASSERT_NE(kids, std::string::npos);
    pdf.replace(kids, 12, "/Kids[02 0 R");
    const auto start = Clock::now();
    const Error error = error_of(folder.write("loop.pdf", pdf));
    EXPECT_LT(Clock::now() - start, 20s);
    EXPECT_FALSE(error.what.empty());
}

// Bytes changed, removed and repeated at random: a document or an error, soon, every time.
TEST(HostileDocument, MutatedPdfs) {
    const ScratchFolder folder;
    const std::string whole = write_pdf({"One page.\nTwo lines.", "Another page."}, {.title = "T"});
    std::mt19937 random(20240607);
    const auto pick = [&](size_t below) { return random() % below; };
    const auto start = Clock::now();
    int tried = 0, read = 0;
    for (; tried < 150 && Clock::now() - start < 15s; ++tried) {
        std::string pdf = whole;
        for (size_t changes = 1 + pick(6); changes > 0; --changes) {
            const size_t at = pick(pdf.size()), length = 1 + pick(30);
            switch (pick(4)) {
                case 0:
                    pdf[at] = static_cast<char>(pick(256));
                    break;
                case 1:
                    pdf.erase(at, length);
                    break;
                case 2:
                    pdf.insert(at, pdf.substr(pick(pdf.size()), length));
                    break;
                case 3:
                    pdf[at] = static_cast<char>('0' + pick(10));
                    break;
            }
        }
        pdf.replace(0, 5, "%PDF-");
        const StopSignal stop;
        const auto document =
            extract_document(GRANARY_EXTRACT, folder.write("m.pdf", pdf), stop, 10s);
        if (document) {
            ++read;
        } else {
            EXPECT_NE(document.error().kind, ErrorKind::internal) << document.error().message();
            EXPECT_FALSE(document.error().what.empty());
        }
    }
    EXPECT_GE(tried, 20);
    EXPECT_GT(read, 0);  // most changes hit what readers forgive
}

// A reader that is not ours: the client believes nothing.
class HostileReader : public testing::Test {
  protected:
    std::string script(const std::string& body) {
        const std::string path = folder_.write("reader " + std::to_string(++count_) + ".sh",
                                               "#!/bin/sh\n" + body + "\n");
        chmod(path.c_str(), 0700);
        return path;
    }
    Error says(const std::string& body) { return error_of("file.pdf", script(body), 2s); }

    ScratchFolder folder_;
    int count_ = 0;
};

TEST_F(HostileReader, Deaths) {
    EXPECT_ERROR(says("kill -SEGV $$"), ErrorKind::invalid_file, "crashed");
    EXPECT_ERROR(says("kill -XCPU $$"), ErrorKind::refused, "120 s");
    EXPECT_ERROR(says("exit 1"), ErrorKind::invalid_file, "exit code 1");
    EXPECT_ERROR(error_of("x", folder_.path("absent")), ErrorKind::io, "No such file");
}

TEST_F(HostileReader, Lies) {
    EXPECT_ERROR(says("exit 0"), ErrorKind::internal, "no header");
    EXPECT_ERROR(says("echo nonsense"), ErrorKind::internal, "JSON");
    EXPECT_ERROR(says("echo '[1]'"), ErrorKind::internal, "JSON");
    EXPECT_ERROR(says("echo '{\"format\":3,\"pages\":1,\"bytes\":9}'; echo hi"),
                 ErrorKind::internal, "9 were announced");
    EXPECT_ERROR(says("echo '{\"pages\":-1,\"bytes\":3}'; echo hi"), ErrorKind::internal, "page");
    EXPECT_ERROR(says("echo '{\"pages\":1,\"bytes\":2}'; printf '\\377\\376'"), ErrorKind::internal,
                 "UTF-8");
    EXPECT_ERROR(says("echo '{\"error\":\"because\"}'; exit 2"), ErrorKind::internal, "unknown");
}

TEST_F(HostileReader, EndlessOutputIsCut) {
    const Error error = error_of("f", script("exec cat /dev/zero"), 60s);
    EXPECT_ERROR(error, ErrorKind::refused, "64 MiB");
}

TEST_F(HostileReader, SilenceIsEnded) {
    const auto start = Clock::now();
    EXPECT_ERROR(error_of("f", script("exec sleep 60"), 300ms), ErrorKind::refused, "too long");
    EXPECT_ERROR(error_of("f", script("exec >/dev/null; exec sleep 60"), 300ms), ErrorKind::refused,
                 "ended");
    EXPECT_LT(Clock::now() - start, 10s);
}

TEST_F(HostileReader, StopKillsIt) {
    const std::string noted = folder_.path("pid");
    const std::string reader = script("echo $$ > '" + noted + "'; exec sleep 60");
    StopSignal stop;
    std::thread person([&] {
        while (!std::filesystem::exists(noted)) std::this_thread::sleep_for(5ms);
        std::this_thread::sleep_for(50ms);
        stop.request();
    });
    const auto document = extract_document(reader, "f", stop);
    person.join();
    ASSERT_FALSE(document);
    EXPECT_EQ(document.error().kind, ErrorKind::cancelled);
    pid_t pid = 0;
    std::ifstream(noted) >> pid;
    ASSERT_GT(pid, 0);
    EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace granary
