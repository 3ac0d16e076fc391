/* Stands between a program and the disk: copies each file below SHIM_ROOT into SHIM_SHADOW at the moment it is synced, and
 * renames and removes files there when the directory in which they were renamed or unlinked is synced, so that SHIM_SHADOW
 * always holds what a power cut may leave. A file that is renamed before it is synced is left empty. Syncs of files whose name ends in SHIM_IGNORE_SYNC do nothing and say they did, and with SHIM_NO_SYNC those of
 * all files. With SHIM_SYNC_LOG it writes down how many nanoseconds each sync took that the thread named SHIM_SYNC_THREAD made of a
 * file whose name ends in SHIM_SYNC_SUFFIX. A sync that fails by errno.c does nothing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* In errno.c, which is not always there. */
__attribute__((weak)) int sync_fails(int fd);

static void copy_file(const char *from, const char *to)
{
    char temporary[PATH_MAX + 64];
    char buffer[65536];
    ssize_t count;
    int source, target;

    snprintf(temporary, sizeof temporary, "%s.%d.copying", to, (int)gettid());
    source = open(from, O_RDONLY | O_CLOEXEC);
    target = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (source < 0 || target < 0)
        abort();
    while ((count = read(source, buffer, sizeof buffer)) > 0)
        if (write(target, buffer, (size_t)count) != count)
            abort();
    close(source);
    close(target);
    if (rename(temporary, to) != 0)
        abort();
}

/* What is not durable yet ends so in the shadow. */
static int ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text), end = strlen(suffix);

    return length >= end && strcmp(text + length - end, suffix) == 0;
}

static void make_folders(char *path, size_t from)
{
    for (char *slash = strchr(path + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* A rename is durable when its directory is synced. */
static void keep_renamed(const char *shadow)
{
    char from[PATH_MAX + 64], to[PATH_MAX + 64];
    struct dirent *entry;
    DIR *directory = opendir(shadow);

    if (!directory)
        return;
    while ((entry = readdir(directory))) {
        if (!ends_with(entry->d_name, ".renamed"))
            continue;
        snprintf(from, sizeof from, "%s/%s", shadow, entry->d_name);
        snprintf(to, sizeof to, "%s/%.*s", shadow, (int)(strlen(entry->d_name) - strlen(".renamed")), entry->d_name);
        if (rename(from, to) != 0)
            abort();
    }
    closedir(directory);
}

static void forget_unlinked(const char *root, const char *shadow)
{
    char path[PATH_MAX + 64];
    struct dirent *entry;
    DIR *directory = opendir(shadow);

    if (!directory)
        return;
    while ((entry = readdir(directory))) {
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        if (entry->d_type == DT_REG && !ends_with(entry->d_name, ".copying") &&
            !ends_with(entry->d_name, ".renamed") && access(path, F_OK) != 0) {
            snprintf(path, sizeof path, "%s/%s", shadow, entry->d_name);
            unlink(path);
        }
    }
    closedir(directory);
}

/* Where the copy of what is at `path` is; nothing when it is not below the root. */
static int shadow_of(const char *path, char *to, size_t size)
{
    const char *root = getenv("SHIM_ROOT"), *shadow = getenv("SHIM_SHADOW");
    size_t length = root ? strlen(root) : 0;

    if (!root || !shadow || strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != 0))
        return 0;
    snprintf(to, size, "%s%s", shadow, path + length);
    return 1;
}

static void keep(int fd)
{
    const char *root = getenv("SHIM_ROOT"), *shadow = getenv("SHIM_SHADOW");
    char link[64], path[PATH_MAX], to[PATH_MAX + 64];
    struct stat status;
    ssize_t length;

    if (!root || !shadow || fstat(fd, &status) != 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return;
    path[length] = 0;
    if (!shadow_of(path, to, sizeof to))
        return;
    if (S_ISDIR(status.st_mode)) {
        keep_renamed(to);
        forget_unlinked(path, to);
    } else if (S_ISREG(status.st_mode)) {
        make_folders(to, strlen(shadow) + 1);
        copy_file(path, to);
    }
}

/* Takes note of a rename that succeeded. Also asked by errno.c. */
void note_rename(const char *from, const char *to)
{
    const char *shadow = getenv("SHIM_SHADOW");
    char synced[PATH_MAX + 64], renamed[PATH_MAX + 80];
    int empty;

    if (!shadow || !shadow_of(from, synced, sizeof synced) || !shadow_of(to, renamed, sizeof renamed - 16))
        return;
    strcat(renamed, ".renamed");
    make_folders(renamed, strlen(shadow) + 1);
    if (REAL(rename)(synced, renamed) == 0)
        return;
    empty = open(renamed, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (empty < 0)
        abort();
    close(empty);
}

__attribute__((weak)) int rename(const char *from, const char *to)
{
    int result = REAL(rename)(from, to);

    if (result == 0)
        note_rename(from, to);
    return result;
}

static int has_suffix(int fd, const char *suffix)
{
    char link[64], path[PATH_MAX];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < (ssize_t)strlen(suffix))
        return 0;
    path[length] = 0;
    return strcmp(path + length - strlen(suffix), suffix) == 0;
}

static int is_thread(const char *wanted)
{
    char name[16] = "";

    return prctl(PR_GET_NAME, name) == 0 && strcmp(name, wanted) == 0;
}

static void write_down(int fd, const struct timespec *from, const struct timespec *to)
{
    const char *path = getenv("SHIM_SYNC_LOG"), *suffix = getenv("SHIM_SYNC_SUFFIX"), *thread = getenv("SHIM_SYNC_THREAD");
    char line[32];
    int log, length;

    if (!path || (suffix && !has_suffix(fd, suffix)) || (thread && !is_thread(thread)))
        return;
    log = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log < 0)
        return;
    length = snprintf(line, sizeof line, "%lld\n",
                      (long long)(to->tv_sec - from->tv_sec) * 1000000000LL + (to->tv_nsec - from->tv_nsec));
    if (write(log, line, (size_t)length) != length)
        abort();
    close(log);
}

static int sync_with(const char *name, int fd)
{
    struct timespec from, to;
    const char *ignore = getenv("SHIM_IGNORE_SYNC");
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result;

    if (sync_fails && sync_fails(fd))
        return -1;
    if (getenv("SHIM_NO_SYNC") || (ignore && *ignore && has_suffix(fd, ignore)))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    result = real(fd);
    clock_gettime(CLOCK_MONOTONIC, &to);
    write_down(fd, &from, &to);
    if (result == 0)
        keep(fd);
    return result;
}

int fsync(int fd) { return sync_with("fsync", fd); }

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
