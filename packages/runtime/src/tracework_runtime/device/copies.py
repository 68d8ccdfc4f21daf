"""COPIES: one kernel that makes many small copies, as text that the driver compiles for its device.

Its parameter is an array of ROWS rows (to, from, bytes), which csrc/replay_inputs.c fills; blocks of THREADS threads, one row of blocks for each.
A row without bytes has a number of 64 bits in the place of `from`, which is written.
"""

__all__ = ["COPIES", "ENTRY"]

ENTRY = "tracework_copies"
ROWS = 64
THREADS = 256


def _loop(name: str, shift: int, kind: str, registers: str) -> str:
    """Copies whole units of 2**shift bytes from the index on, and leaves what is behind them to the loop of bytes."""
    return f"""
    shr.u64 %d12, %d6, {shift};
    mov.u64 %d13, %d7;
{name}:
    setp.ge.u64 %p2, %d13, %d12;
    @%p2 bra {name}_END;
    shl.b64 %d14, %d13, {shift};
    add.s64 %d15, %d5, %d14;
    add.s64 %d16, %d4, %d14;
    ld.global.{kind} {registers}, [%d15];
    st.global.{kind} [%d16], {registers};
    add.s64 %d13, %d13, %d9;
    bra {name};
{name}_END:
    shl.b64 %d17, %d12, {shift};
"""


COPIES = f"""
.version 7.0
.target sm_80
.address_size 64

.visible .entry {ENTRY}(.param .align 8 .b8 rows[{24 * ROWS}])
{{
    .reg .pred %p<4>;
    .reg .b16 %h<2>;
    .reg .b32 %r<10>;
    .reg .b64 %d<20>;

    mov.u32 %r1, %ctaid.y;
    mul.wide.u32 %d1, %r1, 24;
    mov.b64 %d2, rows;
    add.s64 %d3, %d2, %d1;
    ld.param.u64 %d4, [%d3];
    ld.param.u64 %d5, [%d3+8];
    ld.param.u64 %d6, [%d3+16];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    cvta.to.global.u64 %d4, %d4;
    setp.ne.u64 %p1, %d6, 0;
    @%p1 bra COPY;
    or.b32 %r5, %r2, %r4;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra DONE;
    st.global.u64 [%d4], %d5;
    bra DONE;
COPY:
    cvta.to.global.u64 %d5, %d5;
    mul.wide.u32 %d7, %r2, %r3;
    cvt.u64.u32 %d8, %r4;
    add.s64 %d7, %d7, %d8;
    mov.u32 %r5, %nctaid.x;
    mul.wide.u32 %d9, %r5, %r3;
    or.b64 %d10, %d4, %d5;
    and.b64 %d11, %d10, 15;
    setp.ne.u64 %p1, %d11, 0;
    @%p1 bra WORDS;
{_loop("SIXTEENS", 4, "v4.u32", "{%r6, %r7, %r8, %r9}")}
    bra BYTES;
WORDS:
    mov.u64 %d17, 0;
    and.b64 %d11, %d10, 3;
    setp.ne.u64 %p1, %d11, 0;
    @%p1 bra BYTES;
{_loop("FOURS", 2, "u32", "%r6")}
BYTES:
    add.s64 %d13, %d17, %d7;
ONES:
    setp.ge.u64 %p2, %d13, %d6;
    @%p2 bra DONE;
    add.s64 %d15, %d5, %d13;
    add.s64 %d16, %d4, %d13;
    ld.global.u8 %h1, [%d15];
    st.global.u8 [%d16], %h1;
    add.s64 %d13, %d13, %d9;
    bra ONES;
DONE:
    ret;
}}
"""
