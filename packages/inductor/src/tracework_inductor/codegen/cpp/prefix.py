"""The head of every C++ file: types, conversions of half types and vectorisable functions; no system header but stdint.

Functions of libm are declared with simd variants, which glibc's libmvec has: loops marked `omp simd` call these.
"""

from .vector_functions import VECTOR_FUNCTIONS

VECTOR_LIBM = ("exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
               "erf", "erfc", "exp2", "log2", "log10", "log1p", "expm1", "tanh")  # fmt: skip
"""Present as _ZGV... in libmvec of glibc 2.35 and later."""

SCALAR_LIBM = ("lgamma",)


def libm(simd: bool) -> str:
    """Declarations and wrappers tw_<name> for float and double."""
    mark = '__attribute__((simd("notinbranch"))) ' if simd else ""
    lines = ['extern "C" {']
    for name in VECTOR_LIBM:
        lines.append(f"{mark}double {name}(double); {mark}float {name}f(float);")
    lines.append(f"{mark}double pow(double, double); {mark}float powf(float, float);")
    lines.append(f"{mark}double atan2(double, double); {mark}float atan2f(float, float);")
    lines.append(f"{mark}double hypot(double, double); {mark}float hypotf(float, float);")
    for name in SCALAR_LIBM:
        lines.append(f"double {name}(double); float {name}f(float);")
    lines.append("}")
    for name in (*VECTOR_LIBM, *SCALAR_LIBM):
        if name not in OWN:
            lines.append(f"TW float tw_{name}(float a) {{ return {name}f(a); }} ")
        lines.append(f"TW double tw_{name}(double a) {{ return {name}(a); }}")
    for name in ("pow", "atan2", "hypot"):
        lines.append(f"TW float tw_{name}(float a, float b) {{ return {name}f(a, b); }}")
        lines.append(f"TW double tw_{name}(double a, double b) {{ return {name}(a, b); }}")
    return "\n".join(lines)


OWN = frozenset({"exp", "erf"})
"""float functions written out below; a tanh of ours was measured to be slower than libmvec's by 1.4."""

HEAD = r"""
#include <stdint.h>
#define TW_MEMBER inline __attribute__((always_inline))
#define TW static TW_MEMBER
TW int64_t tw_floordiv(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a ^ b) < 0)); }
TW int64_t tw_mod(int64_t a, int64_t b) { int64_t r = a % b; return r + (((r != 0) & ((r ^ b) < 0)) ? b : 0); }
TW int64_t tw_imax(int64_t a, int64_t b) { return a > b ? a : b; }
TW int64_t tw_imin(int64_t a, int64_t b) { return a < b ? a : b; }
template <class A, class B> TW A tw_bits(B b) { A a; __builtin_memcpy(&a, &b, sizeof a); return a; }
// An integer on its way to a float: g++ makes a truncation, with its -0.0, of a conversion to integers and back when traps do not count.
#ifdef __has_builtin
#if __has_builtin(__builtin_assoc_barrier)
#define tw_whole(v) __builtin_assoc_barrier(v)
#endif
#endif
#ifndef tw_whole
#define tw_whole(v) (v)
#endif
struct tw_bf16 { uint16_t bits; };
struct tw_half { uint16_t bits; };
template <class T> TW T tw_get(T v) { return v; }
TW float tw_get(tw_bf16 v) { return tw_bits<float>((uint32_t)v.bits << 16); }
// Halves in integers: of conversions of _Float16 g++ makes no vectors. Denormal ones are whole multiples of 2**-24.
TW float tw_get(tw_half v) {
  const int32_t u = v.bits & 0x7fff, wide = (u << 13) + (u < 0x7c00 ? 0x38000000 : 0x70000000);
  const float least = (float)u * 0x1p-24f; const int32_t size = u < 0x400 ? tw_bits<int32_t>(least) : wide;
  return tw_bits<float>((uint32_t)size | (uint32_t)(v.bits & 0x8000) << 16); }
template <class T, class V> TW void tw_put(T* p, V v) { *p = (T)v; }
template <class V> TW void tw_put(tw_bf16* p, V value) {
  float v = (float)value; uint32_t u = tw_bits<uint32_t>(v); uint32_t r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  p->bits = (uint16_t)(v != v ? 0x7fc0u : r); }
template <class V> TW void tw_put(tw_half* p, V value) {
  const uint32_t bits = tw_bits<uint32_t>((float)value); const int32_t u = (int32_t)(bits & 0x7fffffffu);
  const int32_t least = tw_bits<int32_t>(tw_bits<float>(u) + 0.5f) - 0x3f000000, whole = (u - 0x38000000 + 0xfff + ((u >> 13) & 1)) >> 13;
  const int32_t finite = u < 0x38800000 ? least : whole, large = u > 0x7f800000 ? 0x7e00 : 0x7c00;
  p->bits = (uint16_t)((u < 0x477ff000 ? finite : large) | (int32_t)(bits >> 16 & 0x8000u)); }
template <class T> TW float tw_rounded(float v) { T h; tw_put(&h, v); return tw_get(h); }
template <class T> inline T tw_lowest();
template <class T> inline T tw_highest();
#define TW_LIMITS(T, LO, HI) template <> inline T tw_lowest<T>() { return LO; } template <> inline T tw_highest<T>() { return HI; }
TW_LIMITS(float, -__builtin_inff(), __builtin_inff()) TW_LIMITS(double, -__builtin_inf(), __builtin_inf())
TW_LIMITS(int64_t, INT64_MIN, INT64_MAX) TW_LIMITS(int32_t, INT32_MIN, INT32_MAX) TW_LIMITS(int16_t, INT16_MIN, INT16_MAX)
TW_LIMITS(int8_t, INT8_MIN, INT8_MAX) TW_LIMITS(uint8_t, 0, UINT8_MAX) TW_LIMITS(bool, false, true)
template <class T> TW T tw_abs(T a) { return a < 0 ? (T)-a : a; }
TW float tw_abs(float a) { return __builtin_fabsf(a); }
TW double tw_abs(double a) { return __builtin_fabs(a); }
// Two selections each: of one with a disjunction g++ makes branches, and then it does not vectorise.
template <class T> TW T tw_max(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; }
template <class T> TW T tw_min(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }
template <class T> TW T tw_fmax(T a, T b) { T m = a >= b ? a : b; return b != b ? a : m; }
template <class T> TW T tw_fmin(T a, T b) { T m = a <= b ? a : b; return b != b ? a : m; }
template <class T> TW bool tw_isinf(T a) { return tw_abs(a) == (T)__builtin_inf(); }
template <class T> TW bool tw_isfinite(T a) { return a - a == 0; }
template <class T> TW bool tw_signbit(T a) { return a < 0; }
TW bool tw_signbit(float a) { return tw_bits<int32_t>(a) < 0; }
TW bool tw_signbit(double a) { return tw_bits<int64_t>(a) < 0; }
#define TW_BUILTIN(N, B) TW float tw_##N(float a) { return __builtin_##B##f(a); } TW double tw_##N(double a) { return __builtin_##B(a); }
TW_BUILTIN(floor, floor) TW_BUILTIN(ceil, ceil) TW_BUILTIN(trunc, trunc) TW_BUILTIN(sqrt, sqrt) TW_BUILTIN(rint, nearbyint)
TW float tw_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TW double tw_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class T> TW T tw_fma(T a, T b, T c) { return a * b + c; }
TW float tw_copysign(float a, float b) { return __builtin_copysignf(a, b); }
TW double tw_copysign(double a, double b) { return __builtin_copysign(a, b); }
TW float tw_nextafter(float a, float b) { return __builtin_nextafterf(a, b); }
TW double tw_nextafter(double a, double b) { return __builtin_nextafter(a, b); }
TW float tw_fmod(float a, float b) { return __builtin_fmodf(a, b); }
TW double tw_fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T> TW bool tw_is_minus_one(T b) { return (T)-1 < (T)0 && b == (T)-1; }
template <class T> TW T tw_fmod(T a, T b) { return tw_is_minus_one(b) ? (T)0 : (T)(a % b); }
template <class T> TW T tw_remainder(T a, T b) {
  if (tw_is_minus_one(b)) return 0; T r = (T)(a % b); return (r != 0) & ((r < 0) != (b < 0)) ? (T)(r + b) : r; }
template <class T> TW T tw_remainder_f(T a, T b) { T r = tw_fmod(a, b); return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r; }
TW float tw_remainder(float a, float b) { return tw_remainder_f(a, b); }
TW double tw_remainder(double a, double b) { return tw_remainder_f(a, b); }
template <class T> TW T tw_trunc_divide(T a, T b) { return tw_is_minus_one(b) ? (T)-a : (T)(a / b); }
TW float tw_trunc_divide(float a, float b) { return tw_trunc(a / b); }
TW double tw_trunc_divide(double a, double b) { return tw_trunc(a / b); }
template <class T> TW T tw_floor_divide(T a, T b) {
  if (tw_is_minus_one(b)) return (T)-a; T q = (T)(a / b); return (T)(q - ((a % b != 0) & ((a < 0) != (b < 0)))); }
template <class T> TW T tw_floor_divide_f(T a, T b) {
  T m = tw_fmod(a, b), d = (a - m) / b; d = (m != 0) & ((b < 0) != (m < 0)) ? d - 1 : d;
  T f = tw_floor(d); f = d - f > (T)0.5 ? f + 1 : f;
  T whole = d != 0 ? f : tw_copysign((T)0, a / b); return b == 0 ? a / b : whole; }
TW float tw_floor_divide(float a, float b) { return tw_floor_divide_f(a, b); }
TW double tw_floor_divide(double a, double b) { return tw_floor_divide_f(a, b); }
template <class T> TW T tw_pow(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : (T)0;
  T r = 1; while (b) { if (b & 1) r *= a; a *= a; b >>= 1; } return r; }
template <class T> TW T tw_shift_left(T a, T b) { return (b < 0) | (b >= (T)(8 * sizeof(T))) ? (T)0 : (T)(a << b); }
template <class T> TW T tw_shift_right(T a, T b) {
  T top = (T)(8 * sizeof(T) - 1); return (T)(a >> ((b < 0) | (b > top) ? top : b)); }
"""

SUMS = r"""
// Long sums, see blocks.py. Level k of a cascade of N sums side by side has added up as many results of the level below as digit k of
// `blocks`, to the base 16, says.
template <class V, int N = 1> struct tw_cascade {
  V at[16][N]; uint64_t blocks = 0;
  TW void put(V* a, const V* v, bool more) {
    if (more) for (int j = 0; j < N; ++j) a[j] += v[j];
    else for (int j = 0; j < N; ++j) a[j] = v[j]; }
  void add(const V* v) {
    int k = 0;
    for (uint64_t b = blocks++; ; b >>= 4, v = at[k++]) {
      put(at[k], v, b & 15);
      if (__builtin_expect((b & 15) != 15, 1)) return; } }
  void total(V* v) const {
    int k = 0;
    for (uint64_t b = blocks; b; b >>= 4, ++k) if (b & 15) put(v, at[k], true); } };
// The first where it is more (less), else the second: one instruction, which g++ does not find in a choice between vectors.
template <class V> TW V tw_more(V a, V b) { return a > b ? a : b; }
template <class V> TW V tw_less(V a, V b) { return a < b ? a : b; }
#define TW_EXTREMES(V, MARK) \
  TW V tw_more(V a, V b) { V m; asm("vmaxps %2, %1, %0" : "=" MARK(m) : MARK(a), MARK(b)); return m; } \
  TW V tw_less(V a, V b) { V m; asm("vminps %2, %1, %0" : "=" MARK(m) : MARK(a), MARK(b)); return m; }
#ifdef __AVX512F__
typedef float tw_sixteen __attribute__((vector_size(64), may_alias));
TW_EXTREMES(tw_sixteen, "v")
#endif
#ifdef __AVX__
typedef float tw_eight __attribute__((vector_size(32), may_alias));
TW_EXTREMES(tw_eight, "x")
#endif
// Comparisons of vectors that are longer than the processor's are made element by element by g++: it has them in halves.
#ifdef __AVX512F__
enum { tw_longest = 64 };
#else
enum { tw_longest = 32 };
#endif
template <class F, class V> TW V tw_by_halves(V a, V b) {
  typedef decltype(+a[0]) element; typedef element half __attribute__((vector_size(sizeof(V) / 2)));
  struct halves { half a, b; }; halves x = tw_bits<halves>(a), y = tw_bits<halves>(b);
  return tw_bits<V>(halves{F::of(x.a, y.a), F::of(x.b, y.b)}); }
// How lanes are combined, one by one or as vectors, and which of two comes first where a place is looked for. A NaN wins.
struct tw_added { template <class V> TW V of(V a, V b) { return a + b; } };
struct tw_largest {
  template <class V> TW auto first(V a, V b) { return a > b; }
  template <class V> TW V of(V a, V b) {
    if constexpr (sizeof(V) > tw_longest) return tw_by_halves<tw_largest>(a, b);
    else { V m = tw_more(a, b); return a != a ? a : m; } } };
struct tw_least {
  template <class V> TW auto first(V a, V b) { return a < b; }
  template <class V> TW V of(V a, V b) {
    if constexpr (sizeof(V) > tw_longest) return tw_by_halves<tw_least>(a, b);
    else { V m = tw_less(a, b); return a != a ? a : m; } } };
template <class T> struct tw_lanes {
  typedef T type __attribute__((vector_size(64), may_alias));
  template <class F, int N> TW type of(const T* terms) {
    const type* v = (const type*)terms; type s = v[0];
    for (int j = 1; j < N * (int)sizeof(T) / 64; ++j) s = F::of(s, v[j]);
    return s; }
  typedef T half __attribute__((vector_size(32)));
  typedef T quarter __attribute__((vector_size(16)));
  struct halves { half a, b; };
  struct quarters { quarter a, b; };
  template <class F> TW T total(type v) {
    halves h = tw_bits<halves>(v); quarters q = tw_bits<quarters>(F::of(h.a, h.b)); quarter s = F::of(q.a, q.b);
    if (sizeof(T) == 4) return F::of(F::of((T)s[0], (T)s[1]), F::of((T)s[2], (T)s[3]));
    return F::of((T)s[0], (T)s[1]); } };
template <int SIZE> struct tw_integer { typedef int32_t type; };
template <> struct tw_integer<8> { typedef int64_t type; };
// The first place of the largest or least of each of N lanes. Places are integers of the elements' size.
template <class T, class F, int N> struct tw_best {
  typedef typename tw_integer<sizeof(T)>::type place;
  typedef T values __attribute__((vector_size(tw_longest), may_alias));
  typedef place places __attribute__((vector_size(tw_longest), may_alias));
  static const int COUNT = N * (int)sizeof(T) / tw_longest, LANES = tw_longest / (int)sizeof(T);
  values v[COUNT]; places p[COUNT];
  template <class V, class P> TW auto better(V a, P at, V b, P than) {
    return F::first(a, b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (at < than)); }
  TW_MEMBER tw_best(T start) {
    for (int j = 0; j < COUNT; ++j) { v[j] = (values){} + start; p[j] = (places){} + tw_highest<place>(); } }
  TW_MEMBER void put(const T* terms, const place* at) {
    for (int j = 0; j < COUNT; ++j) {
      values t = ((const values*)terms)[j]; places q = ((const places*)at)[j]; auto b = better(t, q, v[j], p[j]);
      v[j] = b ? t : v[j]; p[j] = b ? q : p[j]; } }
  TW_MEMBER void one(T t, int64_t at) { if (better(t, (place)at, (T)v[0][0], (place)p[0][0])) { v[0][0] = t; p[0][0] = (place)at; } }
  TW_MEMBER int64_t total() {
    for (int j = 0; j < COUNT; ++j) for (int k = 0; k < LANES; ++k) one(v[j][k], p[j][k]);
    return p[0][0]; } };
"""

VECTORS = r"""
typedef float tw_v8 __attribute__((vector_size(32)));
typedef float tw_v8u __attribute__((vector_size(32), aligned(4), may_alias));
TW tw_v8 tw_load8(const float* p) { return *(const tw_v8u*)p; }
TW void tw_store8(float* p, tw_v8 v) { *(tw_v8u*)p = v; }
#define TW_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
// Eight columns of 8 rows that are ld apart, as 8 vectors that are step apart.
TW void tw_turn8(const float* s, int64_t ld, float* d, int64_t step, int64_t rows) {
  tw_v8 r[8], t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = i < rows ? tw_load8(s + i * ld) : (tw_v8){};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = TW_SHUFFLE(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[2 * i + 1] = TW_SHUFFLE(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15); }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = TW_SHUFFLE(t[4 * i], t[4 * i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    u[4 * i + 1] = TW_SHUFFLE(t[4 * i], t[4 * i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    u[4 * i + 2] = TW_SHUFFLE(t[4 * i + 1], t[4 * i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    u[4 * i + 3] = TW_SHUFFLE(t[4 * i + 1], t[4 * i + 3], 2, 3, 10, 11, 6, 7, 14, 15); }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) tw_store8(d + i * step, TW_SHUFFLE(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) tw_store8(d + (i + 4) * step, TW_SHUFFLE(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15)); }
// Sixteen columns of 8 rows of 16 bits: 8 columns in each half of a vector.
typedef uint16_t tw_w8 __attribute__((vector_size(16)));
typedef uint16_t tw_w8u __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t tw_w16 __attribute__((vector_size(32)));
typedef uint16_t tw_w16u __attribute__((vector_size(32), aligned(1), may_alias));
struct tw_w_halves { tw_w8 low, high; };
#define TW_BOTH(a, b, i, j, k, l, m, n, o, p) TW_SHUFFLE(a, b, i, j, k, l, m, n, o, p, i + 8, j + 8, k + 8, l + 8, m + 8, n + 8, o + 8, p + 8)
TW void tw_turn_words(const uint16_t* s, int64_t ls, uint16_t* d, int64_t ld) {
  tw_w16 r[8], t[8], u[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = *(const tw_w16u*)(s + i * ls);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = TW_BOTH(r[i], r[i + 1], 0, 16, 1, 17, 2, 18, 3, 19);
    t[i + 1] = TW_BOTH(r[i], r[i + 1], 4, 20, 5, 21, 6, 22, 7, 23); }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int first = i / 2 * 4 + i % 2;
    u[2 * i] = TW_BOTH(t[first], t[first + 2], 0, 1, 16, 17, 2, 3, 18, 19);
    u[2 * i + 1] = TW_BOTH(t[first], t[first + 2], 4, 5, 20, 21, 6, 7, 22, 23); }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const tw_w_halves a = tw_bits<tw_w_halves>(TW_BOTH(u[i], u[i + 4], 0, 1, 2, 3, 16, 17, 18, 19));
    const tw_w_halves b = tw_bits<tw_w_halves>(TW_BOTH(u[i], u[i + 4], 4, 5, 6, 7, 20, 21, 22, 23));
    *(tw_w8u*)(d + 2 * i * ld) = a.low; *(tw_w8u*)(d + (2 * i + 1) * ld) = b.low;
    *(tw_w8u*)(d + (2 * i + 8) * ld) = a.high; *(tw_w8u*)(d + (2 * i + 9) * ld) = b.high; } }
// Sixteen columns of 16 rows of bytes: rows that are 8, 4, 2 and 1 apart are put together, byte by byte.
typedef uint8_t tw_b16 __attribute__((vector_size(16)));
typedef uint8_t tw_b16u __attribute__((vector_size(16), aligned(1), may_alias));
TW void tw_turn_bytes(const uint8_t* s, int64_t ls, uint8_t* d, int64_t ld) {
  tw_b16 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = *(const tw_b16u*)(s + i * ls);
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = TW_SHUFFLE(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      b[2 * i + 1] = TW_SHUFFLE(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) a[i] = b[i]; }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) *(tw_b16u*)(d + i * ld) = a[i]; }
// A block that is turned in registers, by the size of an element: its rows and columns.
template <int SIZE> struct tw_turned { enum { rows = 1, columns = 1 }; };
template <> struct tw_turned<1> {
  enum { rows = 16, columns = 16 };
  TW void of(const void* s, int64_t ls, void* d, int64_t ld) { tw_turn_bytes((const uint8_t*)s, ls, (uint8_t*)d, ld); } };
template <> struct tw_turned<2> {
  enum { rows = 8, columns = 16 };
  TW void of(const void* s, int64_t ls, void* d, int64_t ld) { tw_turn_words((const uint16_t*)s, ls, (uint16_t*)d, ld); } };
template <> struct tw_turned<4> {
  enum { rows = 8, columns = 8 };
  TW void of(const void* s, int64_t ls, void* d, int64_t ld) { tw_turn8((const float*)s, ls, (float*)d, ld, 8); } };
// Element (j, i) of the target is element (i, j) of the source; rows and columns are the source's.
template <class T> static void tw_turn(const T* s, int64_t ls, T* d, int64_t ld, int64_t rows, int64_t columns) {
  typedef tw_turned<sizeof(T)> block;
  int64_t whole_rows = 0, whole_columns = 0;
  if constexpr (block::rows > 1) {
    whole_rows = rows / block::rows * block::rows; whole_columns = columns / block::columns * block::columns;
    for (int64_t i = 0; i < whole_rows; i += block::rows)
      for (int64_t j = 0; j < whole_columns; j += block::columns) block::of(s + i * ls + j, ls, d + j * ld + i, ld); }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) d[j * ld + i] = s[i * ls + j]; }
// The lines of so many columns of rows that are ld apart are fetched into the second cache.
template <class T> TW void tw_ahead(const T* s, int64_t ld, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < columns; j += 64 / sizeof(T)) __builtin_prefetch(s + i * ld + j, 0, 2); }
// Every S-th element of a row, N of them; no others than those between the first and the last are read.
template <int S, int N, class T> TW void tw_every(const T* s, T* d) { for (int i = 0; i < N; ++i) d[i] = s[S * i]; }
#define TW_EVERY2(N, ...) \
  template <> inline __attribute__((always_inline)) void tw_every<2, N, float>(const float* s, float* d) { \
    typedef float pair __attribute__((vector_size(4 * N), aligned(4), may_alias)); \
    pair a = *(const pair*)s, b = *(const pair*)(s + N - 1); *(pair*)d = TW_SHUFFLE(a, b, __VA_ARGS__); }
TW_EVERY2(8, 0, 2, 4, 6, 9, 11, 13, 15)
TW_EVERY2(16, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31)
"""

WIDE = r"""
#ifndef TW_WIDE
#define TW_WIDE
// Vectors as wide as the processor's, for kernels that lay out their registers themselves.
#ifdef __AVX512F__
enum { tw_width = 16 };
#else
enum { tw_width = 8 };
#endif
typedef float tw_vector __attribute__((vector_size(tw_width * 4)));
typedef float tw_loose __attribute__((vector_size(tw_width * 4), aligned(4), may_alias));
typedef int32_t tw_words __attribute__((vector_size(tw_width * 4)));
#if defined(__clang__)
#define TW_MADD(a, b, c) __builtin_elementwise_fma(a, b, c)
#elif defined(__AVX512F__)
#define TW_MADD(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4)
#elif defined(__FMA__)
#define TW_MADD(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#else
#define TW_MADD(a, b, c) ((a) * (b) + (c))
#endif
// As many elements as a vector has floats, as floats. The conversions are written out: g++ widens vectors element by element.
TW tw_vector tw_wide(const float* p) { return *(const tw_loose*)p; }
#ifdef __AVX2__
#define TW_WIDENED(NAME, T, OP, BYTES, R) \
  TW R NAME(const T* p) { \
    typedef uint8_t part __attribute__((vector_size(tw_width * BYTES), aligned(1), may_alias)); \
    R v; __asm__(OP " %1, %0" : "=v"(v) : "vm"(*(const part*)p)); return v; }
TW_WIDENED(tw_words_of, tw_bf16, "vpmovzxwd", 2, tw_words)
TW_WIDENED(tw_words_of, int8_t, "vpmovsxbd", 1, tw_words)
TW_WIDENED(tw_words_of, uint8_t, "vpmovzxbd", 1, tw_words)
TW_WIDENED(tw_wide, tw_half, "vcvtph2ps", 2, tw_vector)
TW tw_vector tw_wide(const tw_bf16* p) { return (tw_vector)(tw_words_of(p) << 16); }
template <class T> TW tw_vector tw_wide(const T* p) { return __builtin_convertvector(tw_words_of(p), tw_vector); }
#else
template <class T> TW tw_vector tw_wide(const T* p) {
  tw_vector v;
  for (int i = 0; i < tw_width; ++i) v[i] = tw_get(p[i]);
  return v; }
#endif
#endif
"""

STREAMS = r"""
// Whole lines go to memory past the caches, the ends of a row do not. Another thread may read all of it after the fence.
#if defined(__AVX512F__)
typedef float tw_line __attribute__((vector_size(64), may_alias));
#define TW_PAST(p, v) __builtin_ia32_movntps512(p, v)
#elif defined(__AVX__)
typedef float tw_line __attribute__((vector_size(32), may_alias));
#define TW_PAST(p, v) __builtin_ia32_movntps256(p, v)
#elif defined(__SSE2__)
typedef float tw_line __attribute__((vector_size(16), may_alias));
#define TW_PAST(p, v) __builtin_ia32_movntps(p, v)
#endif
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store) && defined(TW_PAST)
#undef TW_PAST
#define TW_PAST(p, v) __builtin_nontemporal_store(v, (tw_line*)(p))
#endif
#endif
template <class T> TW void tw_stream(T* to, const T* from, int64_t count) {
#ifdef TW_PAST
  char* at = (char*)to; const char* s = (const char*)from; int64_t n = count * (int64_t)sizeof(T), head = -(int64_t)(uintptr_t)at & 63;
  if (head < n) {
    if (head) __builtin_memcpy(at, s, head);
    int64_t k = head;
    for (; k + 64 <= n; k += 64)
      for (int j = 0; j < 64; j += sizeof(tw_line)) {
        tw_line v; __builtin_memcpy(&v, s + k + j, sizeof v); TW_PAST((float*)(at + k + j), v); }
    if (k < n) __builtin_memcpy(at + k, s + k, n - k);
    return; }
#endif
  __builtin_memcpy(to, from, count * sizeof(T)); }
#ifdef _OPENMP
extern "C" int omp_get_max_threads(void);
extern "C" int omp_get_num_threads(void);
extern "C" int omp_get_thread_num(void);
TW int64_t tw_threads() { return omp_get_num_threads(); }
TW int64_t tw_thread() { return omp_get_thread_num(); }
#else
TW int64_t tw_threads() { return 1; }
TW int64_t tw_thread() { return 0; }
#endif
// The thread that has a place: one range of places for each, as loops over them are shared out, so that what lies in its cache stays there.
TW int64_t tw_owner(int64_t place, int64_t places, int64_t threads) { return tw_imin(place * threads / tw_imax(places, 1), threads - 1); }
// Columns for a task, as many tasks as threads: whole steps of loops over columns, so that the number of threads does not change how a column is
// added up.
TW int64_t tw_columns_of_task(int64_t n) {
#ifdef _OPENMP
  const int64_t threads = omp_get_max_threads();
#else
  const int64_t threads = 1;
#endif
  return ((n + threads - 1) / threads + 31) / 32 * 32; }
TW void tw_fence() {
#ifdef TW_PAST
  __builtin_ia32_sfence();
#endif
}
"""

FAST = r"""
// A float between two of which these are the bits, or one of them: two instructions, where comparisons of floats that keep NaN are four.
template <uint32_t LEAST, int32_t MOST> TW float tw_within(float v) {
  uint32_t low = tw_bits<uint32_t>(v); low = low < LEAST ? low : LEAST;
  int32_t both = (int32_t)low; return tw_bits<float>(both < MOST ? both : MOST); }
// exp: 2**n * p(r) with |r| <= ln2 / 2; n comes from a sum that has it in its lowest bits. 2**n is two factors: it overflows, becomes
// denormal or 0 where the result does. Arguments are limited to -104.5 and 89.
TW float tw_exp(float v) {
  const float x = tw_within<0xc2d10000u, 0x42b20000>(v), shift = 12582912.f;
  float t = __builtin_fmaf(x, 1.44269504088896341f, shift), n = t - shift;
  float r = __builtin_fmaf(n, -0.693145751953125f, x); r = __builtin_fmaf(n, -1.42860682e-6f, r);
  float p = 0.0013950482243672013f; p = __builtin_fmaf(p, r, 0.008368887938559055f); p = __builtin_fmaf(p, r, 0.04166620597243309f); p = __builtin_fmaf(p, r, 0.166665181517601f); p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r * r, r) + 1.f;
  uint32_t k = tw_bits<uint32_t>(t), half = (k << 22) & 0xff800000u;
  float y = p * tw_bits<float>(half + 0x3f800000u) * tw_bits<float>((k << 23) - half + 0x3f800000u);
  return v != v ? v : y; }
// erf: x * p(s), s linear in x * x and between -1 and 1; at 3.84 it is 1, as it is behind that. Within 4 units in the last place.
TW float tw_erf(float v) {
  const float x = tw_within<0xc075c27fu, 0x4075c27f>(v), s = __builtin_fmaf(x * x, 0.13563369f, -1.f);
  float p = -0.0005690554971806705f;
  p = __builtin_fmaf(p, s, 0.0014673658879473805f); p = __builtin_fmaf(p, s, -0.0011694799177348614f); p = __builtin_fmaf(p, s, 0.0018175708828493953f);
  p = __builtin_fmaf(p, s, -0.006235647946596146f); p = __builtin_fmaf(p, s, 0.011823826469480991f); p = __builtin_fmaf(p, s, -0.017777888104319572f);
  p = __builtin_fmaf(p, s, 0.027391228824853897f); p = __builtin_fmaf(p, s, -0.04089667648077011f); p = __builtin_fmaf(p, s, 0.05633924901485443f);
  p = __builtin_fmaf(p, s, -0.07301345467567444f); p = __builtin_fmaf(p, s, 0.09080075472593307f); p = __builtin_fmaf(p, s, -0.11055365204811096f);
  p = __builtin_fmaf(p, s, 0.1365184336900711f); p = __builtin_fmaf(p, s, -0.18376538157463074f); p = __builtin_fmaf(p, s, 0.36823946237564087f);
  float y = x * p;
  return v != v ? v : y; }
"""  # noqa: E501


def prefix(simd: bool = True) -> str:
    """The whole head."""
    return HEAD + SUMS + VECTORS + STREAMS + libm(simd) + FAST + VECTOR_FUNCTIONS
