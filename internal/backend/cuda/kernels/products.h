// Products for `auto`: activations, and weights in other formats, are rounded to bfloat16 for the
// tensor cores. The order of an element's sum depends only on the width of the weight, so a token
// has the same bits alone and in any batch.
#pragma once
#include "math.h"
#include "warp.h"
#include "weights.h"

// A Part is one weight of a product and its result.
struct Part {
	Weight w;
	float *y;
	i64 ys;
	const u8 *bias;
	i64 bias_step, bias_format, rows;
};

// Products are up to three products of the same activations, [tokens][cols], whose weights have one
// format. With an activation, `gated` gets the results of the second one times the activation of
// those of the first one.
struct Products {
	Part part[3];
	const float *x;
	i64 xs, tokens, cols;
	float *gated;
	i64 gated_stride, act, limit;
	const u16 *rounded; // x in bfloat16, in rows of cols rounded up to 8, for many
};

// Codes are a stored row of codes and its scales. Functions take its fields one by one: the address
// of a struct would move it to local memory, which all threads of all blocks would then write.
struct Codes {
	const u8 *row, *scales;
	int format, scale_format, block_cols;
};

DEVICE Codes codes_of(const Weight &w, i64 row) {
	const u8 *scales = w.scales ? w.scales + row / w.block_rows * w.scale_stride * (w.format == MXFP4 ? 1 : size_of(w.scale_format)) : nullptr;
	return {w.data + row * w.stride, scales, (int)w.format, (int)w.scale_format, (int)w.block_cols};
}

// eight_codes returns n of eight neighbouring elements of a row in bfloat16, followed by zeros.
APART Vector eight_codes(const u8 *p, const u8 *scales, int format, int scale_format, int block_cols, i64 col, int n) {
	float v[8] = {};
	if (n == 8 && col % 8 == 0) {
		const int i = (int)(col % 32), j = (int)(col % 256);
		float by, less;
		switch (format) {
		case Q8:
			p += col / 32 * 34;
			by = from_half(load16(p));
			for (int k = 0; k < 8; k++) v[k] = (float)(signed char)p[2 + i + k] * by;
			break;
		case Q4:
			p += col / 32 * 18;
			by = from_half(load16(p));
			for (int k = 0; k < 8; k++) v[k] = (float)((p[2 + i % 16 + k] >> i / 16 * 4 & 15) - 8) * by;
			break;
		case Q4_K:
			p += col / 256 * 144;
			q4_k_scale(p, j / 32, &by, &less);
			for (int k = 0; k < 8; k++) v[k] = by * (float)(p[16 + j / 64 * 32 + j % 32 + k] >> j / 32 % 2 * 4 & 15) - less;
			break;
		case Q6_K:
			p += col / 256 * 210;
			for (int k = 0; k < 8; k++) v[k] = q6_k(p, j + k);
			break;
		default: // E4M3 and MXFP4
			for (int k = 0; k < 8; k++) {
				const i64 at = (col + k) / block_cols;
				by = format == MXFP4 ? e8m0(scales[at]) : load(scales + at * size_of(scale_format), scale_format) * 256;
				v[k] = (format == MXFP4 ? mxfp4(p, col + k) : small_e4m3(p[col + k])) * by;
			}
		}
	} else
		for (int k = 0; k < n; k++) {
			const Weight w = {p, format, 0, 0, 0, 1, 0, scales, scale_format, 0, 1, block_cols};
			v[k] = stored_element(w, 0, col + k);
		}
	return {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
}

// eight returns eight neighbouring elements of a row in bfloat16, from column k of the view, with
// zeros beyond the last one.
template <bool CODED> DEVICE Vector eight(const Codes &w, i64 first, i64 k, i64 cols) {
	if (k >= cols) return Vector{};
	const int n = cols - k < 8 ? (int)(cols - k) : 8;
	if (CODED) return eight_codes(w.row, w.scales, w.format, w.scale_format, w.block_cols, first + k, n);
	const u8 *p = w.row + 2 * (first + k);
	if (n == 8 && ((u64)p & 15) == 0) return load_once(p);
	Vector out = {};
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (i < n) out.v[i / 2] |= (u32)load16(p + 2 * i) << i % 2 * 16;
	return out;
}

// eight_rounded returns eight activations, with zeros from column `cols`. x points to column k.
DEVICE Vector eight_rounded(const float *x, i64 k, i64 cols) {
	Vector out = {};
	if (k + 8 <= cols && ((u64)x & 15) == 0) {
		const Vector a = *(const Vector *)x, b = *(const Vector *)(x + 4);
		for (int n = 0; n < 2; n++) {
			out.v[n] = pack(of_bits(a.v[2 * n]), of_bits(a.v[2 * n + 1]));
			out.v[n + 2] = pack(of_bits(b.v[2 * n]), of_bits(b.v[2 * n + 1]));
		}
		return out;
	}
	for (int n = 0; n < 4; n++)
		if (k + 2 * n < cols) out.v[n] = pack(x[2 * n], k + 2 * n + 1 < cols ? x[2 * n + 1] : 0);
	return out;
}

APART float biased(float sum, const u8 *bias, i64 format) { return sum + load(bias, format); }

DEVICE void put(const Part &o, i64 token, i64 r, float sum) {
	o.y[token * o.ys + r] = o.bias ? biased(sum, o.bias + r * o.bias_step, o.bias_format) : sum;
}

// part_of returns a part of p, field by field: an index that is no constant would put all of p into local memory.
DEVICE Part part_of(const Products &p, int i) {
#define FIELD(f) chosen(i, p.part[0].f, p.part[1].f, p.part[2].f)
	return {{FIELD(w.data), FIELD(w.format), FIELD(w.stride), FIELD(w.row), FIELD(w.col), FIELD(w.step), 0, FIELD(w.scales), FIELD(w.scale_format), FIELD(w.scale_stride), FIELD(w.block_rows), FIELD(w.block_cols)},
	        FIELD(y), FIELD(ys), FIELD(bias), FIELD(bias_step), FIELD(bias_format), FIELD(rows)};
#undef FIELD
}

// part_at returns the part of a block of so many rows, and makes its number that within the part.
DEVICE int part_at(const Products &p, i64 *block, int rows) {
	const i64 first = (p.part[0].rows + rows - 1) / rows, second = (p.part[1].rows + rows - 1) / rows;
	if (*block < first) return 0;
	*block -= first;
	if (*block < second) return 1;
	*block -= second;
	return 2;
}

// WARPS are those of a block. A warp takes TURN columns in turn, in STEPS steps of 32.
enum { WARPS = 8, STEPS = 4, TURN = 32 * STEPS };

// few has a block for 16·MT rows and 8·NT tokens. Its warps divide the columns: warp i takes
// columns 128·i to 128·i + 127 of each 1024. Their sums are added in the order of the warps. The
// columns of a thread are neighbours in memory but not in the tile. That does not change results,
// because weights and activations have the same order. UNROLL steps are loaded while the previous
// ones are multiplied. GATED blocks have half as many rows, of two weights. With more than eight
// tokens, activations have been rounded before.
template <int MT, int NT, int UNROLL, bool CODED, bool GATED> DEVICE void few(const Products &p) {
	enum { ROWS = 16 * MT / (GATED ? 2 : 1) };
	i64 block = BLOCK_X;
	const int which = GATED ? 0 : part_at(p, &block, ROWS);
	const Part o = part_of(p, which), second = part_of(p, GATED ? 1 : which);
	const i64 row = block * ROWS, token = BLOCK_Y * 8 * NT;
	const int warp = THREAD / 32, g = THREAD % 32 / 4, t = THREAD % 4, start = warp * TURN + 8 * t;
	const int cols = (int)p.cols, padded = (cols + 7) / 8 * 8;
	// Rows and tokens beyond the last are the last ones here: their sums are not stored.
	const auto stored = [&](int m, int i) __attribute__((always_inline)) {
		const Part &of = i && GATED ? second : o;
		const i64 r = row + (GATED ? 8 * m : 16 * m + 8 * i) + g;
		return (r < of.rows ? r : of.rows - 1) * of.w.step + of.w.row;
	};
	const u8 *weights[MT][2];
	const float *tokens[NT];
	const u16 *rounded = p.rounded + (token + g) * padded + start; // there are as many rows as blocks have
	u64 unaligned = CODED;
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const Weight &w = i && GATED ? second.w : o.w;
			weights[m][i] = w.data + stored(m, i) * w.stride + 2 * (w.col + start);
			unaligned |= ((u64)w.data | (u64)w.stride | (u64)(2 * w.col)) & 15;
		}
#pragma unroll
	for (int n = 0; n < NT; n++) {
		const i64 at = token + 8 * n + g < p.tokens ? token + 8 * n + g : p.tokens - 1;
		tokens[n] = p.x + at * p.xs + start;
	}
	if (NT == 1) unaligned |= ((u64)p.x | (u64)(4 * p.xs)) & 15;
	const auto activations = [&](Vector *b, int at, bool whole) __attribute__((always_inline)) {
#pragma unroll
		for (int n = 0; n < NT; n++) {
			if (NT == 1) b[n] = eight_rounded(tokens[n] + at, whole ? 0 : start + at, whole ? 8 : cols);
			else b[n] = start + at < padded ? *(const Vector *)(rounded + 8 * n * padded + at) : Vector{};
		}
	};
	float c[MT][NT][4] = {};
	const auto multiply_all = [&](const Vector (*a)[2], const Vector *b) __attribute__((always_inline)) {
#pragma unroll
		for (int m = 0; m < MT; m++)
#pragma unroll
			for (int n = 0; n < NT; n++)
#pragma unroll
				for (int h = 0; h < 4; h += 2)
					multiply(c[m][n], a[m][0].v[h], a[m][1].v[h], a[m][0].v[h + 1], a[m][1].v[h + 1], b[n].v[h], b[n].v[h + 1]);
	};
	int done = 0; // columns
	if (!unaligned && cols >= TURN * WARPS) {
		Vector a[UNROLL][MT][2], b[UNROLL][NT];
		const auto fetch = [&](int step) __attribute__((always_inline)) {
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
#pragma unroll
				for (int m = 0; m < MT; m++)
#pragma unroll
					for (int i = 0; i < 2; i++) a[u][m][i] = load_once(weights[m][i] + 64 * (step + u));
		};
		fetch(0); // weights depend on no kernel
		DEPEND();
		const int whole = cols / (TURN * WARPS) * (TURN * WARPS);
		for (; done < whole; done += TURN * WARPS) {
#pragma unroll
			for (int step = 0; step < STEPS; step += UNROLL) {
#pragma unroll
				for (int u = 0; u < UNROLL; u++) activations(b[u], done + 32 * (step + u), true);
#pragma unroll
				for (int u = 0; u < UNROLL; u++) multiply_all(a[u], b[u]);
				if (step + UNROLL < STEPS) fetch(step + UNROLL);
			}
#pragma unroll
			for (int m = 0; m < MT; m++) weights[m][0] += 2 * TURN * WARPS, weights[m][1] += 2 * TURN * WARPS;
			if (done + TURN * WARPS < whole) fetch(0);
		}
	} else
		DEPEND();
	for (; done < cols; done += TURN * WARPS)
		for (int step = 0; step < STEPS; step++) {
			Vector a[MT][2], b[NT];
			const int at = done + 32 * step;
#pragma unroll
			for (int m = 0; m < MT; m++)
#pragma unroll
				for (int i = 0; i < 2; i++) a[m][i] = eight<CODED>(codes_of(i && GATED ? second.w : o.w, stored(m, i)), i && GATED ? second.w.col : o.w.col, start + at, cols);
			activations(b, at, false);
			multiply_all(a, b);
		}
	SHARED float sums[WARPS][8][16 * MT];
#pragma unroll
	for (int n = 0; n < NT; n++) {
#pragma unroll
		for (int m = 0; m < MT; m++)
#pragma unroll
			for (int i = 0; i < 4; i++) sums[warp][2 * t + i % 2][16 * m + g + i / 2 * 8] = c[m][n][i];
		BARRIER();
		for (int i = THREAD; i < 8 * ROWS; i += 32 * WARPS) {
			const i64 r = row + i % ROWS, at = token + 8 * n + i / ROWS;
			if (r >= o.rows || at >= p.tokens) continue;
			const int in = GATED ? i % ROWS / 8 * 16 + i % 8 : i % ROWS;
			float sum = 0, other = 0;
			for (int w = 0; w < WARPS; w++) sum = sum + sums[w][i / ROWS][in];
			put(o, at, r, sum);
			if (!GATED) continue;
			for (int w = 0; w < WARPS; w++) other = other + sums[w][i / ROWS][in + 8];
			put(second, at, r, other);
			const float open = o.y[at * o.ys + r];
			p.gated[at * p.gated_stride + r] = gate_by(open, second.y[at * second.ys + r], p.act, scalar(p.limit));
		}
		BARRIER();
	}
}

// many has a block for BM tokens and BN rows, as WM x WN tiles of its warps. It reads 32 columns at
// a time and adds them in ascending order. STAGES of these steps are being copied or in use.
template <int BM, int BN, bool CODED> DEVICE void many(const Products &p) {
	enum { STAGES = 3, CHUNKS = 4, WM = 2, WN = 4, MT = BM / WM / 16, NT = BN / WN / 8 };
	SHARED Vector tiles[STAGES][BM + BN][CHUNKS];
	i64 block = BLOCK_X;
	const Part o = part_of(p, part_at(p, &block, BN));
	const i64 row = block * BN, token = BLOCK_Y * BM, stride = (p.cols + 7) / 8 * 8;
	const int steps = (int)((p.cols + 31) / 32), cols = (int)p.cols;
	const int warp = THREAD / 32, lane = THREAD % 32, wm = warp / WN * (BM / WM), wn = warp % WN * (BN / WN);
	// Each thread copies one chunk of every LINES-th line of a tile. LINES is a multiple of 8, so its chunks are swizzled alike.
	enum { LINES = 32 * WARPS / CHUNKS, EACH = (BM + BN) / LINES };
	static_assert(BM % LINES == 0 && BN % LINES == 0, "lines of a thread");
	const int line0 = THREAD / CHUNKS, chunk = THREAD % CHUNKS, swizzled = chunk ^ (line0 >> 1 & 3);
	const u8 *from[EACH]; // of the first step; null for a line beyond the last
	bool direct = !CODED && p.cols % 8 == 0;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int line = line0 + i * LINES;
		const i64 r = row + line - BM;
		if (line < BM) from[i] = token + line < p.tokens ? (const u8 *)(p.rounded + (token + line) * stride + 8 * chunk) : nullptr;
		else from[i] = r < o.rows ? o.w.data + (o.w.row + r * o.w.step) * o.w.stride + 2 * (o.w.col + 8 * chunk) : nullptr;
		direct = direct && ((u64)from[i] & 15) == 0;
	}
	DEPEND();
	const auto fetch = [&](int step, int stage) __attribute__((always_inline)) {
		const int k = step * 32 + 8 * chunk;
		Vector(*to)[CHUNKS] = tiles[stage];
		if (step < steps) {
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				const int line = line0 + i * LINES;
				Vector *at = &to[line][swizzled];
				if (k >= cols || !from[i]) *at = Vector{};
				else if (line < BM || direct) copy_beside(at, from[i] + 64 * step);
				else *at = eight<CODED>(codes_of(o.w, o.w.row + (row + line - BM) * o.w.step), o.w.col, k, cols);
			}
		}
		copies_made();
	};
	float c[MT][NT][4] = {};
	for (int step = 1 - STAGES, next = 0; step < steps; step++) { // next is the stage that is filled
		if (step >= 0) {
			copies_wait<STAGES - 2>();
			BARRIER();
		}
		fetch(step + STAGES - 1, next);
		next = next == STAGES - 1 ? 0 : next + 1;
		if (step < 0) continue;
		const auto &tile = tiles[next]; // the oldest
		const auto at = [&](int line, int chunk) __attribute__((always_inline)) { return &tile[line][chunk ^ (line >> 1 & 3)]; };
#pragma unroll
		for (int half = 0; half < 2; half++) {
			u32 a[MT][4], b[NT / 2][4];
#pragma unroll
			for (int m = 0; m < MT; m++) load_tiles(a[m], at(wm + 16 * m + lane % 16, 2 * half + lane / 16));
#pragma unroll
			for (int n = 0; n < NT / 2; n++) load_tiles(b[n], at(BM + wn + 16 * n + lane / 16 * 8 + lane % 8, 2 * half + lane / 8 % 2));
#pragma unroll
			for (int m = 0; m < MT; m++)
#pragma unroll
				for (int n = 0; n < NT; n++)
					multiply(c[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
		}
	}
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int n = 0; n < NT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const i64 at = token + wm + 16 * m + lane / 4 + i / 2 * 8, r = row + wn + 8 * n + lane % 4 * 2 + i % 2;
				if (at < p.tokens && r < o.rows) put(o, at, r, c[m][n][i]);
			}
}
