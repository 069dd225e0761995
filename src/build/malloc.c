/* Settings of the C library's allocator, made before `main`, and a thread that returns its free memory to the system.
 * There is no safe call for either in Rust. Other C libraries need neither: this is for glibc.
 *
 * By default glibc learns from the first large block that is freed to keep blocks of its size, and twice as much at the
 * end of each thread's heap: after a few large requests the process keeps 30 MB for good. With a fixed threshold, a
 * block of 128 KiB or more goes back to the system when it is freed.
 *
 * Smaller blocks stay, and the free memory between them: thousands of connections leave a hundred MB. `malloc_trim` finds
 * the free pages in every heap and returns them. It locks one heap at a time: 90 MB in two heaps take 22 ms of processor
 * time; a search that frees nothing takes 4 ms.
 *
 * It does not search the end of a thread's heap, which `free` returns. A block in a fast bin is merged with the end later,
 * without that: 20 MB stayed in one of ten crowds. So there are no fast bins; each thread's cache of small blocks remains. */
#define _GNU_SOURCE
#include <stdlib.h>

#ifdef __GLIBC__
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Interval between two checks of the memory in use. A check takes 10 microseconds; a peak is gone 15 s after its end.
 * While much is in use, the checks are more frequent: free memory between blocks counts for the peak too. */
static const time_t INTERVAL_SECONDS = 15;
static const time_t SHORT_INTERVAL_SECONDS = 2;
/* Resident memory at which there is nothing to return. An idle server has 10 MB. */
static const long SMALL_BYTES = 24L << 20;
/* Resident memory at which the short interval applies. */
static const long LARGE_BYTES = 80L << 20;

/* Heaps. By default glibc creates eight per processor and gives each thread one; each keeps free memory of its own. A
 * server has about a hundred threads, but few allocate at the same time. */
static const int MAX_HEAPS = 4;

/* Resident memory, read without the allocator; 0 if it cannot be read. */
static long resident_bytes(void) {
    char text[128];
    long size = 0, resident = 0;
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    return sscanf(text, "%ld %ld", &size, &resident) == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

static void *return_free_memory(void *unused) {
    long resident = 0;
    for (;;) {
        struct timespec interval = {resident > LARGE_BYTES ? SHORT_INTERVAL_SECONDS : INTERVAL_SECONDS, 0};
        nanosleep(&interval, NULL);
        resident = resident_bytes();
        if (resident > SMALL_BYTES)
            malloc_trim(0);
    }
    return unused;
}

/* Without the thread the program works too, so that its failure does not matter. It takes no signals: those are for the
 * threads of the program. */
static void start_returning(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        if (pthread_create(&thread, &attributes, return_free_memory, NULL) == 0)
            pthread_setname_np(thread, "malloc-trim");
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
}

__attribute__((constructor)) static void configure_allocator(void) {
    mallopt(M_MXFAST, 0);
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
    mallopt(M_ARENA_MAX, MAX_HEAPS);
    start_returning();
}
#endif
