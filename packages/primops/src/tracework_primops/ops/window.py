"""Pooling, resampling and patches. Window parameters are tuples with one number per window dim; x is (N, C, *spatial)."""

from ..op import Kind, Tag, declarer

op = declarer("window", Kind.WINDOW)
S = Tag.SCATTER

op(
    "max_pool(x:T, kernel, stride, padding, dilation, ceil_mode=False) -> 2",
    "largest in each window and its flat spatial index (int64)",
)
op("max_pool_backward(grad:T, x:T, kernel, stride, padding, dilation, ceil_mode, indices:T)", "gradient of max_pool", S)
op("avg_pool(x:T, kernel, stride, padding, ceil_mode=False, count_include_pad=True, divisor=None)", "mean of each window")
op("avg_pool_backward(grad:T, x:T, kernel, stride, padding, ceil_mode, count_include_pad, divisor)", "gradient of avg_pool")
op("adaptive_avg_pool(x:T, sizes)", "mean of windows that tile x into `sizes`")
op("adaptive_avg_pool_backward(grad:T, x:T)", "gradient of adaptive_avg_pool")
op("adaptive_max_pool(x:T, sizes) -> 2", "largest of windows that tile x, and indices", kind=Kind.LIBRARY)
op("adaptive_max_pool_backward(grad:T, x:T, indices:T)", "gradient of adaptive_max_pool", S, kind=Kind.LIBRARY)
op("max_unpool(x:T, indices:T, sizes)", "values put back at the indices of max_pool", S, Tag.CHECKS, kind=Kind.LIBRARY)
op("upsample_nearest(x:T, sizes, scales, exact=False)", "nearest neighbour; scales: a number or None per spatial dim")
op("upsample_nearest_backward(grad:T, sizes, input_sizes, scales, exact=False)", "gradient of upsample_nearest")
op("upsample_linear(x:T, sizes, align_corners, scales)", "linear, bilinear or trilinear")
op("upsample_linear_backward(grad:T, sizes, input_sizes, align_corners, scales)", "gradient of upsample_linear")
op("upsample_bicubic(x:T, sizes, align_corners, scales)", "bicubic")
op("upsample_bicubic_backward(grad:T, sizes, input_sizes, align_corners, scales)", "gradient of upsample_bicubic")
op("grid_sample(x:T, grid:T, mode, padding_mode, align_corners)", "x read at the positions of grid", kind=Kind.LIBRARY)
op(
    "grid_sample_backward(grad:T, x:T, grid:T, mode, padding_mode, align_corners, mask) -> 2",
    "gradients of x and grid",
    S,
    kind=Kind.LIBRARY,
)
op("im2col(x:T, kernel, dilation, padding, stride)", "patches as columns")
op("col2im(x:T, sizes, kernel, dilation, padding, stride)", "columns summed back into an image", S)
op("reflection_pad(x:T, padding)", "padding by reflection; pairs from the last dim backwards, as ATen gives them")
op("reflection_pad_backward(grad:T, x:T, padding)", "gradient of reflection_pad", S)
op("replication_pad(x:T, padding)", "padding by repeating the border; pairs from the last dim backwards")
op("replication_pad_backward(grad:T, x:T, padding)", "gradient of replication_pad", S)
