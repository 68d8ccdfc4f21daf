// Counts the bytes that the C library's allocator has given to a process: preloaded, see benchmarks/memory.py.
#include <malloc.h>
#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

static std::atomic<long> live, peak;

static void* counted(void* given) {
    if (given) {
        long now = live += malloc_usable_size(given);
        for (long most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
        }
    }
    return given;
}

static void ended(void* given) {
    if (given) live -= malloc_usable_size(given);
}

extern "C" {
void* malloc(size_t size) { return counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void* memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

void* realloc(void* before, size_t size) {
    long had = before ? malloc_usable_size(before) : 0;
    void* given = __libc_realloc(before, size);
    if (given || !size) live -= had;
    return counted(given);
}

int posix_memalign(void** given, size_t alignment, size_t size) {
    void* made = memalign(alignment, size);
    if (!made) return ENOMEM;
    *given = made;
    return 0;
}

void free(void* given) {
    ended(given);
    __libc_free(given);
}

// From now on; the bytes that are in use.
long live_bytes_begin() {
    peak = live.load();
    return live;
}

long live_bytes_peak() { return peak; }
}
