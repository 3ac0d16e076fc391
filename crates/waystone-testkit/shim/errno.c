/* Makes one call on a file in SHIM_ROOT fail: the SHIM_FAULT_AT-th of the kind SHIM_FAULT_KIND, counted over all threads, with the
 * error number SHIM_FAULT_ERRNO. The number 0 makes a write short instead, -1 kills the process before the call. Which
 * file it was is written down in SHIM_FAULT_LOG. Syncs are in disk.c, which asks `sync_fails` first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long calls;

static void write_down(const char *path)
{
    const char *log = getenv("SHIM_FAULT_LOG");
    long fd;

    if (!log || (fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
        abort();
    if (syscall(SYS_write, fd, path, strlen(path)) < 0 || syscall(SYS_write, fd, "\n", 1) < 0)
        abort();
    syscall(SYS_close, fd);
}

static int is_inside(const char *path, const char *root)
{
    return strncmp(path, root, strlen(root)) == 0 && (path[strlen(root)] == '/' || path[strlen(root)] == 0);
}

static int number(void)
{
    const char *text = getenv("SHIM_FAULT_ERRNO");
    return text ? atoi(text) : EIO;
}

/* Whether this is the call that fails. */
static int is_due(const char *kind, const char *path)
{
    const char *root = getenv("SHIM_ROOT"), *wanted = getenv("SHIM_FAULT_KIND"), *at = getenv("SHIM_FAULT_AT");

    if (!root || !wanted || !at || strcmp(wanted, kind) != 0 || !is_inside(path, root))
        return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != atol(at))
        return 0;
    write_down(path);
    if (number() < 0)
        kill(getpid(), SIGKILL);
    return 1;
}

static int is_due_at(const char *kind, int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_due(kind, path);
}

/* What a call that cannot be short fails with. */
static int fail(void)
{
    errno = number() ? number() : ENOSPC;
    return -1;
}

int sync_fails(int fd) { return is_due_at("fsync", fd) ? fail() : 0; }

/* How much of a write that is due gets through; a failure when nothing does. */
static ssize_t part_of(size_t count) { return number() == 0 && count > 1 ? (ssize_t)(count / 2) : fail(); }

#define COMMA ,
#define WRITE(name, offset_parameter, offset)                                    \
    ssize_t name(int fd, const void *bytes, size_t count offset_parameter)       \
    {                                                                            \
        if (is_due_at("write", fd)) {                                            \
            ssize_t part = part_of(count);                                       \
            return part < 0 ? part : REAL(name)(fd, bytes, (size_t)part offset); \
        }                                                                        \
        return REAL(name)(fd, bytes, count offset);                              \
    }
WRITE(write, , )
WRITE(pwrite, COMMA off_t offset, COMMA offset)
WRITE(pwrite64, COMMA off64_t offset, COMMA offset)

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (is_due_at("write", fd)) {
        ssize_t part = count > 0 ? part_of(parts[0].iov_len) : fail();
        return part < 0 ? part : REAL(write)(fd, parts[0].iov_base, (size_t)part);
    }
    return REAL(writev)(fd, parts, count);
}

int ftruncate(int fd, off_t length) { return is_due_at("write", fd) ? fail() : REAL(ftruncate)(fd, length); }

int ftruncate64(int fd, off64_t length) { return is_due_at("write", fd) ? fail() : REAL(ftruncate64)(fd, length); }

static int open_fails(const char *path, int flags)
{
    return (flags & (O_CREAT | O_WRONLY | O_RDWR)) && is_due("open", path);
}

#define OPEN(name, at_parameter, at)                                                \
    int name(at_parameter const char *path, int flags, ...)                         \
    {                                                                               \
        va_list rest;                                                               \
        mode_t mode = 0;                                                            \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                      \
            va_start(rest, flags);                                                  \
            mode = va_arg(rest, mode_t);                                            \
            va_end(rest);                                                           \
        }                                                                           \
        return open_fails(path, flags) ? fail() : REAL(name)(at path, flags, mode); \
    }
OPEN(open, , )
OPEN(open64, , )
OPEN(openat, int folder COMMA, folder COMMA)
OPEN(openat64, int folder COMMA, folder COMMA)

int mkdir(const char *path, mode_t mode) { return is_due("mkdir", path) ? fail() : REAL(mkdir)(path, mode); }

/* In disk.c. */
void note_rename(const char *from, const char *to);

int rename(const char *from, const char *to)
{
    int result = is_due("rename", from) ? fail() : REAL(rename)(from, to);

    if (result == 0)
        note_rename(from, to);
    return result;
}

int unlink(const char *path) { return is_due("unlink", path) ? fail() : REAL(unlink)(path); }
