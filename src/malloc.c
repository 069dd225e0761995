/* Settings of the C library's allocator, made before `main`. There is no safe call for them in Rust.
 *
 * By default glibc learns from the first large block that is freed to keep blocks of its size, and twice as much at the
 * end of each thread's heap: after a few large requests the process keeps 30 MB for good. With a fixed threshold, a
 * block of 128 KiB or more goes back to the system when it is freed. */
#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>

__attribute__((constructor)) static void return_large_blocks(void) {
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}
#endif
