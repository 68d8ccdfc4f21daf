"""Views, with value semantics: a prim's result never aliases its operand as far as a graph is concerned."""

from ..op import Kind, declarer

op = declarer("view", Kind.VIEW)

op("expand(x:T, sizes)", "broadcast to `sizes` (complete; new dims lead)")
op("permute(x:T, dims)", "dims in a new order")
op("reshape(x:T, sizes)", "same elements in row-major order, other sizes (complete, no -1)")
op("slice(x:T, dim, start, end, step=1)", "elements start, start+step, ... below end; 0 <= start <= end <= size")
op("squeeze(x:T, dims)", "drop dims of size 1 (a tuple; all have size 1)")
op("unsqueeze(x:T, dim)", "a new dim of size 1 at `dim`")
op("as_strided(x:T, sizes, strides, offset)", "read x's storage (laid out as x.spec says) with other sizes and strides")
op("diagonal(x:T, offset=0, dim1=0, dim2=1)", "the diagonal as the last dim")
op("flip(x:T, dims)", "reversed along dims")
op("unfold(x:T, dim, size, step)", "windows along dim; the window is a new last dim")
op("select(x:T, dim, index)", "one index of one dim, which goes away; 0 <= index < size")
op("view_as_real(x:T)", "complex as a last dim of size 2")
op("view_as_complex(x:T)", "a last dim of size 2 as complex")
op("view_dtype(x:T, dtype)", "storage reinterpreted in a dtype of another width; last dim scales")
