/* `fsync` and `fdatasync` for `cued bench --fsync-delay`, which shows how the program behaves on a slow SD card: each sync
 * takes longer by the number of microseconds in CUED_BENCH_FSYNC_DELAY. The benchmark sets it for itself and for the
 * server that it measures. Without it a sync costs one comparison more.
 *
 * The definitions in the program go before those of the C library, for SQLite and for Rust. They call the next ones, which
 * may be those of a library for LD_PRELOAD. The other ways need more: such a library is a second file, a slow block device
 * needs root, and a VFS of SQLite needs unsafe Rust code and misses the other files. Other systems keep the functions of
 * their C library. */
#define _GNU_SOURCE
#include <stdlib.h>

#if defined(__linux__) && defined(__GLIBC__)
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const long MICROSECONDS_PER_SECOND = 1000000;

typedef int (*sync_function)(int file);

static long delay_microseconds;
/* Null in a static program. */
static sync_function next_fsync, next_fdatasync;

__attribute__((constructor)) static void read_delay(void) {
    *(void **)&next_fsync = dlsym(RTLD_NEXT, "fsync");
    *(void **)&next_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    const char *text = getenv("CUED_BENCH_FSYNC_DELAY");
    if (text != NULL)
        delay_microseconds = atol(text);
}

static void delay(void) {
    if (delay_microseconds > 0) {
        struct timespec pause = {delay_microseconds / MICROSECONDS_PER_SECOND,
                                 delay_microseconds % MICROSECONDS_PER_SECOND * 1000};
        nanosleep(&pause, NULL);
    }
}

int fsync(int file) {
    delay();
    return next_fsync != NULL ? next_fsync(file) : (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    delay();
    return next_fdatasync != NULL ? next_fdatasync(file) : (int)syscall(SYS_fdatasync, file);
}
#endif
