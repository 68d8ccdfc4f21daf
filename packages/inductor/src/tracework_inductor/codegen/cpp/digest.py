"""A kernel that tells whether bytes have changed: 16 bytes for each block of memory, under keys that the caller draws at random.

The digest is a tree of NH (J. Black et al., UMAC, CRYPTO 1999): of words w and keys k, the sum of (w[2i] + k[2i]) * (w[2i+1] + k[2i+1])
modulo 2^128, the factors modulo 2^64. For two unequal blocks of one length, chosen without knowledge of the keys, the sums are
equal with probability at most 2^-64. 8 KiB give 16 bytes, which are digested again with the next keys until one sum is
left: four levels, which are enough for a terabyte, 2^-62 in all. It runs at the speed of memory.
"""

from ..renderer import KERNEL_NAME, RenderedKernel

LEVELS = 4
KEY_BYTES = 8192 * LEVELS
"""Random bytes that the kernel takes: 8 KiB a level."""

_SOURCE = r"""
typedef unsigned __int128 tw_u128;
static const int64_t tw_block_words = 1024;
static tw_u128 tw_nh(const uint64_t* w, const uint64_t* k, int64_t n) {
  tw_u128 a = 0, b = 0; int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    a += (tw_u128)(w[i] + k[i]) * (w[i + 1] + k[i + 1]);
    b += (tw_u128)(w[i + 2] + k[i + 2]) * (w[i + 3] + k[i + 3]); }
  for (; i < n; i += 2) a += (tw_u128)(w[i] + k[i]) * ((i + 1 < n ? w[i + 1] : 0) + k[i + 1]);
  return a + b; }
static tw_u128 tw_block(const char* p, int64_t bytes, const uint64_t* k) {
  if (bytes == tw_block_words * 8) return tw_nh((const uint64_t*)p, k, tw_block_words);
  uint64_t last[tw_block_words]; int64_t words = (bytes + 7) / 8;
  last[words - 1] = 0; __builtin_memcpy(last, p, bytes);
  return tw_nh(last, k, words); }
static tw_u128 tw_digest(const char* p, int64_t bytes, const uint64_t* k) {
  const int64_t block = tw_block_words * 8, count = (bytes + block - 1) / block;
  if (count == 1) return tw_block(p, bytes, k);
  tw_u128* sums = (tw_u128*)__builtin_malloc(count * sizeof(tw_u128));
  #pragma omp parallel for if(count > 64)
  for (int64_t n = 0; n < count; ++n) sums[n] = tw_block(p + n * block, tw_imin(block, bytes - n * block), k);
  tw_u128 found = tw_digest((const char*)sums, count * sizeof(tw_u128), k + tw_block_words);
  __builtin_free(sums);
  return found; }
extern "C" void KERNEL_NAME(const char** blocks, const int64_t* bytes, int64_t count, const uint64_t* keys, tw_u128* out) {
  for (int64_t n = 0; n < count; ++n) {
    tw_u128 found = tw_digest(blocks[n], bytes[n], keys);
    __builtin_memcpy(out + n, &found, sizeof found); } }
"""

DIGEST_KERNEL = RenderedKernel(_SOURCE.replace("KERNEL_NAME", KERNEL_NAME), ("*", "*", "i64", "*", "*"))
"""Takes addresses and lengths of `count` blocks, KEY_BYTES of keys, and where to put 16 bytes for each block."""
