// SPDX-License-Identifier: GPL-3.0-or-later
// What the extractor can no longer do once it has limited itself. Each probe runs in a process of
// its own, which exits with 0 where the attempt failed as it should.
#include "engine/extract/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "engine/extract/input_file.h"
#include "scratch_folder.h"

namespace granary::extract {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int kUnconfined = 100;

// The exit code of a confined process that runs `probe`.
int confined(const std::function<bool()>& denied) {
    const pid_t child = fork();
    if (child == 0) _exit(confine() ? kUnconfined : denied() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Confined : public testing::Test {
  protected:
    void SetUp() override {
        if (kSanitized) GTEST_SKIP() << "sanitizers need what is denied";
    }
};

TEST_F(Confined, StillReadsAndAllocates) {
    EXPECT_EQ(confined([] {
                  const std::string kept(1 << 20, 'x');
                  return read_input("/proc/self/exe").has_value() && open("/", O_RDONLY) >= 0;
              }),
              0);
}

TEST_F(Confined, HasNoNetwork) {
    EXPECT_EQ(confined([] { return socket(AF_INET, SOCK_STREAM, 0) < 0; }), 0);
    EXPECT_EQ(confined([] { return socket(AF_UNIX, SOCK_STREAM, 0) < 0; }), 0);
    EXPECT_EQ(confined([] {
                  int pair[2];
                  return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0;
              }),
              0);
}

TEST_F(Confined, WritesNoFile) {
    const test::ScratchFolder folder;
    const std::string old = folder.write("old", "kept");
    EXPECT_EQ(confined([&] {
                  return open(folder.path("new").c_str(), O_WRONLY | O_CREAT, 0600) < 0 &&
                         open(old.c_str(), O_WRONLY) < 0 && open(old.c_str(), O_RDWR) < 0 &&
                         open(old.c_str(), O_RDONLY | O_TRUNC) < 0 && unlink(old.c_str()) < 0 &&
                         mkdir(folder.path("d").c_str(), 0700) < 0 &&
                         rename(old.c_str(), folder.path("moved").c_str()) < 0 &&
                         truncate(old.c_str(), 0) < 0 && chmod(old.c_str(), 0) < 0;
              }),
              0);
    EXPECT_EQ(std::filesystem::file_size(old), 4u);
    EXPECT_FALSE(std::filesystem::exists(folder.path("new")));
}

TEST_F(Confined, StartsNoProcess) {
    EXPECT_EQ(confined([] {
                  const pid_t child = fork();
                  if (child == 0) _exit(0);
                  char name[] = "/bin/true";
                  char* argv[] = {name, nullptr};
                  execv(name, argv);
                  return child < 0;
              }),
              0);
}

TEST_F(Confined, HasOneGibibyte) {
    EXPECT_EQ(confined([] {
                  return mmap(nullptr, size_t{1} << 30, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
              }),
              0);
}

TEST_F(Confined, HasFewFilesAndNoneOfItsParents) {
    const int open_before = open("/", O_RDONLY);
    ASSERT_GE(open_before, 3);
    EXPECT_EQ(confined([&] {
                  struct stat status = {};
                  if (fstat(open_before, &status) == 0) return false;
                  for (unsigned i = 0; i < kOpenFiles; ++i) {
                      if (open("/", O_RDONLY) < 0) return true;
                  }
                  return false;
              }),
              0);
    close(open_before);
}

// Its output is this test's pipe, which ends when the last holder is gone.
TEST_F(Confined, DiesWithItsParent) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            dup2(ends[1], STDOUT_FILENO);
            if (!confine() && write(STDOUT_FILENO, "c", 1) == 1) {
                while (true) sleep(1000);
            }
            _exit(1);
        }
        close(ends[1]);
        char byte = 0;
        // Not before the child is confined.
        const bool seen = read(ends[0], &byte, 1) == 1;
        _exit(seen ? 0 : 1);
    }
    close(ends[1]);
    int status = 0;
    waitpid(parent, &status, 0);
    EXPECT_EQ(status, 0);
    pollfd ended = {ends[0], POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, 5000), 1);
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

TEST(Input, WithoutTheRightToRead) {
    const test::ScratchFolder folder;
    const std::string file = folder.write("mine.txt", "private");
    ASSERT_EQ(chmod(file.c_str(), 0), 0);
    // Root may read everything: be nobody for a moment.
    const uid_t user = geteuid();
    ASSERT_TRUE(user != 0 || seteuid(65534) == 0);
    const auto bytes = read_input(file);
    ASSERT_EQ(seteuid(user), 0);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().code, "denied");
}

}  // namespace
}  // namespace granary::extract
