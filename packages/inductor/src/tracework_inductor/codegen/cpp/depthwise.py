"""The gradient of a depthwise convolution's weights on a CPU: images and gradients of float32, channels-last.

A task has two vectors of channels and some rows of the gradient. For each row of the window the sums of its taps stay in registers while
the gradient's row and the image's stream past them; then they are added to those of other rows, so that no sum is long. How the rows are
divided depends on sizes alone: the bits are the same on any number of threads.
"""

from ..renderer import KERNEL_NAME, RenderedKernel
from .prefix import WIDE

MOST_TAPS = 7
"""Of a row of the window at once: twice as many sums and two vectors of the gradient are the 16 registers of 256 bits."""
LEAST_TASKS = 8
"""Images of few channels are divided by rows into as many, for the threads of usual machines."""

_HEAD = r"""
// K taps of a row of the window, `dilation` columns apart, for a row of the gradient. shift: the image's column that the first tap of the
// first result reads, which x points to and which may be outside; second: where the other vector of channels is.
template <int K> static void tw_taps(const float* x, const float* g, int64_t channels, int64_t second, int64_t columns, int64_t results,
    int64_t stride, int64_t dilation, int64_t shift, float* sums) {
  // The results all of whose taps are inside.
  const int64_t room = columns - 1 - shift - (K - 1) * dilation;
  const int64_t first = shift < 0 ? tw_imin(results, (stride - 1 - shift) / stride) : 0;
  const int64_t last = room < 0 ? first : tw_imax(first, tw_imin(results, room / stride + 1));
  tw_vector a[K] = {}, b[K] = {};
  for (int64_t j = first; j < last; ++j) {
    const float *at = x + j * stride * channels, *of = g + j * channels;
    const tw_vector u = tw_wide(of), v = tw_wide(of + second);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k, at += dilation * channels) {
      a[k] = TW_MADD(tw_wide(at), u, a[k]); b[k] = TW_MADD(tw_wide(at + second), v, b[k]); } }
#pragma GCC unroll 8
  for (int k = 0; k < K; ++k) {
    const int64_t column = shift + k * dilation;
    for (int64_t j = first ? 0 : last; j < results; j = j + 1 == first ? last : j + 1) {
      if (column + j * stride < 0 || column + j * stride >= columns) continue;
      const float *at = x + (j * stride + k * dilation) * channels, *of = g + j * channels;
      a[k] = TW_MADD(tw_wide(at), tw_wide(of), a[k]); b[k] = TW_MADD(tw_wide(at + second), tw_wide(of + second), b[k]); }
    tw_loose* sum = (tw_loose*)(sums + 2 * k * tw_width);
    sum[0] += a[k]; sum[1] += b[k]; } }
"""

_BODY = r"""
extern "C" int32_t KERNEL_NAME(const float* x, const float* g, float* out, int64_t images, int64_t channels, int64_t height, int64_t columns,
    int64_t rows, int64_t results, int64_t taps_down, int64_t taps_across, int64_t stride_down, int64_t stride_across, int64_t above,
    int64_t left, int64_t dilation_down, int64_t dilation_across) {
  const int64_t vectors = (channels + tw_width - 1) / tw_width, groups = (vectors + 1) / 2, all = images * rows;
  const int64_t parts = tw_imax(1, tw_imin(all, (LEAST_TASKS + groups - 1) / groups)), taps = taps_down * taps_across;
  const int64_t size = taps * 2 * tw_width;
  float* sums = (float*)__builtin_malloc(groups * parts * size * sizeof(float));
  if (!sums) return 1;
  // The last vectors begin earlier where channels are left over: some are then computed twice.
#define TW_FIRST(vector) tw_imin((vector) * tw_width, channels - tw_width)
  #pragma omp parallel for schedule(static)
  for (int64_t task = 0; task < groups * parts; ++task) {
    const int64_t group = task / parts, part = task % parts, channel = TW_FIRST(2 * group);
    const int64_t second = TW_FIRST(2 * group + 1) - channel;
    float* mine = sums + task * size;
    for (int64_t i = 0; i < size; ++i) mine[i] = 0;
    for (int64_t r = all * part / parts; r < all * (part + 1) / parts; ++r)
      for (int64_t i = 0; i < taps_down; ++i) {
        const int64_t row = r % rows * stride_down - above + i * dilation_down;
        if (row < 0 || row >= height) continue;
        const float* of = g + r * results * channels + channel;
        for (int64_t k = 0; k < taps_across; k += MOST_TAPS) {
          const int64_t shift = k * dilation_across - left;
          const float* at = x + ((r / rows * height + row) * columns + shift) * channels + channel;
          float* to = mine + (i * taps_across + k) * 2 * tw_width;
          switch (tw_imin(MOST_TAPS, taps_across - k)) {
CASES
          } } } }
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t vector = c / tw_width, lane = vector % 2 * tw_width + c - TW_FIRST(vector);
    const float* from = sums + vector / 2 * parts * size + lane;
    for (int64_t t = 0; t < taps; ++t) {
      float sum = 0;
      for (int64_t p = 0; p < parts; ++p) sum += from[p * size + t * 2 * tw_width];
      out[c * taps + t] = sum; } }
#undef TW_FIRST
  __builtin_free(sums);
  return 0; }
"""
_CASE = "            case {0}: tw_taps<{0}>(at, of, channels, second, columns, results, stride_across, dilation_across, shift, to); break;"


def _source() -> str:
    text = _BODY.replace("CASES", "\n".join(map(_CASE.format, range(1, MOST_TAPS + 1))))
    for name, value in (("MOST_TAPS", MOST_TAPS), ("LEAST_TASKS", LEAST_TASKS)):
        text = text.replace(name, str(value))
    return WIDE + _HEAD + text.replace("KERNEL_NAME", KERNEL_NAME)


DEPTHWISE_KERNEL = RenderedKernel(_source(), ("*", "*", "*", *["i64"] * 14), (("result", "i32"),))
"""Images, gradients, the weights' gradient in the order of its indices; the numbers of images, channels, rows and columns of an image, rows
and columns of a result, the window's sizes, strides, paddings and dilations. Gives 1 where there is no memory. At least 16 channels."""
