// Products of wide tiles on the tensor cores of compute capability 9.0, which read both operands
// from shared memory.
#pragma once
#include "products.h"

// A Line has 64 columns of a tile in bfloat16, as eight chunks. Line i of a tile stores chunk j at
// j ^ i % 8, so that neighbouring lines use different banks. Tiles begin at multiples of 1,024
// bytes.
typedef Vector Line[8];

#if !defined(__CUDA__) || __CUDA_ARCH__ >= 900
#ifdef __CUDA__
// described is the descriptor of a tile for the tensor cores: its address, a stride of 1,024 bytes
// between groups of eight lines, and lines of 128 bytes in that order of chunks.
DEVICE u64 described(const Line *tile) {
	const u32 at = (u32)(u64)(__attribute__((address_space(3))) const void *)tile;
	return (u64)(at >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define STEP(shape, sums, a, b) "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" sums "}, " a ", " b ", 1, 1, 1, 0, 0;\n"
// A step multiplies 16 columns. The next ones are 32 bytes further, two units of a descriptor.
#define STEPS_OF(shape, sums, a, b)                                                                                       \
	"{\n.reg .b64 x, y;\nwgmma.fence.sync.aligned;\n" STEP(shape, sums, a, b) "add.s64 x, " a ", 2;\nadd.s64 y, " b ", 2;\n"   \
	STEP(shape, sums, "x", "y") "add.s64 x, " a ", 4;\nadd.s64 y, " b ", 4;\n" STEP(shape, sums, "x", "y")                      \
	"add.s64 x, " a ", 6;\nadd.s64 y, " b ", 6;\n" STEP(shape, sums, "x", "y") "wgmma.commit_group.sync.aligned;\n}\n"
#define SUMS_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMS_128 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SUMS_256 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define SUM4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SUM16(i) SUM4(i), SUM4(i + 4), SUM4(i + 8), SUM4(i + 12)
#define SUM64(i) SUM16(i), SUM16(i + 16), SUM16(i + 32), SUM16(i + 48)

// multiply_wide starts adding a [64][64] · b [N][64]ᵀ to c. The four warps of a warpgroup call it
// together. wide_wait waits until at most n of their products are in flight. Element i of c belongs
// to line 16·warp + lane/4 + 8·(i/2%2) of a and to line 8·(i/4) + 2·(lane%4) + i%2 of b.
template <int N> DEVICE void multiply_wide(float *c, const Line *a, const Line *b) {
	static_assert(N == 32 || N == 128 || N == 256, "lines of b");
	const u64 one = described(a), two = described(b);
	if constexpr (N == 32) asm volatile(STEPS_OF("m64n32k16", SUMS_32, "%16", "%17") : SUM16(0) : "l"(one), "l"(two) : "memory");
	if constexpr (N == 128) asm volatile(STEPS_OF("m64n128k16", SUMS_128, "%64", "%65") : SUM64(0) : "l"(one), "l"(two) : "memory");
	if constexpr (N == 256) asm volatile(STEPS_OF("m64n256k16", SUMS_256, "%128", "%129") : SUM64(0), SUM64(64) : "l"(one), "l"(two) : "memory");
}
template <int N> DEVICE void wide_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
#else
template <int N> DEVICE void multiply_wide(float *c, const Line *a, const Line *b) {
	const int warp = sim_thread / 32 % 4, lane = sim_thread % 32;
	const auto of = [](const Line &line, int at, int k) { return of_bits((u32)((const u16 *)&line[k / 8 ^ at % 8])[k % 8] << 16); };
	for (int i = 0; i < N / 2; i++) {
		const int m = 16 * warp + lane / 4 + i / 2 % 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
		for (int k = 0; k < 64; k++) c[i] = FMA(of(a[m], m, k), of(b[n], n, k), c[i]);
	}
}
template <int N> DEVICE void wide_wait() {}
#endif

// wide has a block for BM tokens and BN rows of bfloat16 weights, whose chunks of eight are
// aligned. Blocks of the same rows run one after the other, so that weights are read once. Two
// warpgroups share the tokens if there are 128, and otherwise the rows. A stage has 64 columns. The
// products of one stage run while those of the next one start, so a stage is filled again one step
// after its last use. An element's sum adds columns in ascending order, 16 at a time, for all
// tiles.
template <int BM, int BN> DEVICE void wide(const Products &p) {
	enum { STAGES = 4, GROUPS = BM / 64, N = GROUPS == 2 ? BN : BN / 2, LINES = 32 * WARPS / 8 };
	static_assert(BM % LINES == 0 && BN % LINES == 0, "lines of a thread");
	Line(*tiles)[BM + BN] = (Line(*)[BM + BN])dynamic_shared;
	i64 block = BLOCK_Y;
	const Part o = part_of(p, part_at(p, &block, BN));
	const int row = (int)block * BN, token = (int)BLOCK_X * BM, cols = (int)p.cols, steps = (cols + 63) / 64, tokens = (int)p.tokens, rows = (int)o.rows;
	const int line0 = THREAD / 8, chunk = THREAD % 8, swizzled = chunk ^ (line0 & 7);
	const i64 token_bytes = 2 * p.cols, row_bytes = o.w.step * o.w.stride;
	const u8 *from_tokens = (const u8 *)p.rounded + 16 * chunk, *from_rows = o.w.data + o.w.row * o.w.stride + 2 * o.w.col + 16 * chunk;
	// Lines beyond the last one read the last line: their sums are not stored.
	const auto fetch = [&](int step) __attribute__((always_inline)) {
		if (step < steps) {
			Line *to = tiles[step % STAGES];
			const bool inside = step * 64 + 8 * chunk < cols;
#pragma unroll
			for (int line = 0; line < BM + BN; line += LINES) {
				const int at = line < BM ? token + line + line0 : row + line - BM + line0;
				Vector *chunk_at = &to[line + line0][swizzled];
				if (!inside) *chunk_at = Vector{};
				else if (line < BM) copy_beside(chunk_at, from_tokens + (at < tokens ? at : tokens - 1) * token_bytes + 128 * step);
				else copy_beside(chunk_at, from_rows + (at < rows ? at : rows - 1) * row_bytes + 128 * step);
			}
		}
		copies_made();
	};
	const int group = THREAD / 128, m0 = GROUPS == 2 ? 64 * group : 0, n0 = GROUPS == 2 ? 0 : N * group;
	float c[N / 2] = {};
	DEPEND();
#pragma unroll
	for (int step = 0; step < STAGES - 2; step++) fetch(step);
	for (int step = 0; step < steps; step++) {
		copies_wait<STAGES - 3>();
		copies_seen();
		BARRIER();
		const Line *tile = tiles[step % STAGES];
		multiply_wide<N>(c, tile + m0, tile + BM + n0);
		fetch(step + STAGES - 2);
		wide_wait<1>();
	}
	wide_wait<0>();
	const int lane = THREAD % 32, warp = THREAD / 32 % 4;
#pragma unroll
	for (int i = 0; i < N / 2; i++) {
		const int at = token + m0 + 16 * warp + lane / 4 + i / 2 % 2 * 8, r = row + n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
		if (at < tokens && r < rows) put(o, at, r, c[i]);
	}
}
#endif
