// Attention for `auto` over keys and values in bfloat16. The positions of a context are cut into parts of PART, each
// of which a warp reads for all query heads that share its keys; another kernel adds the parts in ascending order. So
// a row's result depends on its own positions alone. Queries and weights are sums of two bfloat16 numbers each, so
// they lose 16 bits less than their keys and values have.
#pragma once
#include "math.h"
#include "warp.h"

enum { PART = 64, KEYS = 16, QUERIES = 16, ATTEND_WARPS = 4 };

// The operands of attention: see attend in exact.cu. A row of partial sums is top, sum and value_dim numbers.
struct Attention {
	float *y;
	i64 ys;
	const float *q;
	i64 qs;
	const u8 *k;
	i64 k_page, k_head, k_token;
	const u8 *v;
	i64 v_page, v_head, v_token;
	const int *rows, *tables;
	i64 page_tokens, group, dim, value_dim, scale, softcap;
	const u8 *sinks;
	i64 sink_format;
	float *parts;
	i64 heads, most; // most parts of a row
};

// exchanged is v of the thread whose number in the warp differs by mask.
DEVICE float exchanged(float v, int mask) {
#ifdef __CUDA__
	return exchange(v, mask);
#else
	sim_lane[0][0][sim_thread] = v;
	sim_barrier();
	const float r = sim_lane[0][0][sim_thread ^ mask];
	sim_barrier();
	return r;
#endif
}

// split packs two numbers as sums of two bfloat16.
DEVICE void split(float a, float b, u32 *high, u32 *low) {
	*high = pack(a, b);
	*low = pack(a - of_bits(*high << 16), b - of_bits(*high & 0xffff0000));
}

// swizzled is where a row of queries has a chunk, so that neighbouring rows lie in other banks.
DEVICE int swizzled(int row, int chunk) { return chunk ^ (row & 1) << 2; }

// attend_parts: BLOCK_X is the row and four of its parts, BLOCK_Y the key/value head and 16 of its query heads. rows
// says of each row its first visible position, the end, and where its pages begin in `tables`.
template <int DIM, int VALUES> DEVICE void attend_parts(const Attention &p) {
	enum { NT = VALUES / 8 };
	SHARED Vector queries[2][QUERIES][DIM / 8], values[ATTEND_WARPS][KEYS][VALUES / 8];
	const int blocks = (int)((p.most + ATTEND_WARPS - 1) / ATTEND_WARPS), row = (int)(BLOCK_X / blocks), first = (int)(BLOCK_X % blocks) * ATTEND_WARPS;
	const int tiles = (int)((p.group + QUERIES - 1) / QUERIES), kv_head = (int)BLOCK_Y / tiles;
	const int head0 = (int)BLOCK_Y % tiles * QUERIES, heads = (int)p.group - head0 < QUERIES ? (int)p.group - head0 : QUERIES;
	const int warp = THREAD / 32, lane = THREAD % 32, g = lane / 4, t = lane % 4;
	const int lo = p.rows[3 * row], hi = p.rows[3 * row + 1], dim = (int)p.dim, value_dim = (int)p.value_dim, page_tokens = (int)p.page_tokens;
	const int *table = p.tables + p.rows[3 * row + 2];
	DEPEND();
	if ((lo / PART + first) * PART >= hi) return; // the row has no such parts
	for (int i = THREAD; i < QUERIES * DIM / 2; i += 32 * ATTEND_WARPS) {
		const int head = i / (DIM / 2), c = i % (DIM / 2) * 2;
		const float *in = p.q + row * p.qs + (kv_head * p.group + head0 + head) * dim + c;
		const bool in_range = head < heads && c < dim; // dim is even
		split(in_range ? in[0] : 0, in_range ? in[1] : 0, &queries[0][head][swizzled(head, c / 8)].v[c % 8 / 2], &queries[1][head][swizzled(head, c / 8)].v[c % 8 / 2]);
	}
	BARRIER();
	const int begin = (lo / PART + first + warp) * PART;
	float out[NT][4] = {}, top[2] = {-INFINITE, -INFINITE}, sum[2] = {};
	Vector keys[2][DIM / 32];
	const auto fetch_keys = [&](int at) __attribute__((always_inline)) {
#pragma unroll
		for (int n = 0; n < 2; n++) {
			const int pos = at + 8 * n + g;
			const bool seen = pos >= lo && pos < hi;
			const u8 *key = seen ? p.k + table[pos / page_tokens] * p.k_page + kv_head * p.k_head + pos % page_tokens * p.k_token : nullptr;
#pragma unroll
			for (int j = 0; j < DIM / 32; j++) keys[n][j] = seen && 32 * j + 8 * t < dim ? *(const Vector *)(key + 2 * (32 * j + 8 * t)) : Vector{};
		}
	};
	const auto fetch_values = [&](int at) __attribute__((always_inline)) {
		for (int i = lane; i < KEYS * VALUES / 8; i += 32) {
			const int key = i / (VALUES / 8), chunk = i % (VALUES / 8), pos = at + key;
			Vector *to = &values[warp][key][chunk ^ (key & 7)];
			if (pos >= lo && pos < hi && 8 * chunk < value_dim)
				copy_beside(to, p.v + table[pos / page_tokens] * p.v_page + kv_head * p.v_head + pos % page_tokens * p.v_token + 16 * chunk);
			else *to = Vector{};
		}
		copies_made();
	};
	fetch_keys(begin);
	for (int step = 0; step < PART; step += KEYS) {
		const int at = begin + step;
		fetch_values(at);
		float s[2][4] = {}, rest[2][4] = {};
#pragma unroll
		for (int j = 0; j < DIM / 32; j++)
#pragma unroll
			for (int low = 1; low >= 0; low--) {
				const Vector a = queries[low][g][swizzled(g, 4 * j + t)], b = queries[low][g + 8][swizzled(g, 4 * j + t)];
#pragma unroll
				for (int n = 0; n < 2; n++)
#pragma unroll
					for (int h = 0; h < 4; h += 2) multiply(low ? rest[n] : s[n], a.v[h], b.v[h], a.v[h + 1], b.v[h + 1], keys[n][j].v[h], keys[n][j].v[h + 1]);
			}
		if (step + KEYS < PART) fetch_keys(at + KEYS);
		// The scores of a thread: heads g and g + 8, each at positions 2t, 2t + 1, 2t + 8 and 2t + 9.
		u32 high[4], low[4];
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float e[4], most = -INFINITE;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const int pos = at + 8 * (i / 2) + 2 * t + i % 2;
				e[i] = (s[i / 2][2 * h + i % 2] + rest[i / 2][2 * h + i % 2]) * scalar(p.scale);
				if (p.softcap) e[i] = scalar(p.softcap) * hyperbolic_tangent(e[i]);
				if (pos < lo || pos >= hi) e[i] = -INFINITE;
				most = e[i] > most ? e[i] : most;
			}
			most = __builtin_fmaxf(most, exchanged(most, 1));
			most = __builtin_fmaxf(most, exchanged(most, 2));
			const float before = top[h];
			top[h] = most > before ? most : before;
			const float by = top[h] == -INFINITE ? 1 : exponential2((before - top[h]) * 1.44269504f);
			float more = 0;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				e[i] = e[i] == -INFINITE ? 0 : exponential2((e[i] - top[h]) * 1.44269504f);
				more = more + e[i];
			}
			more = more + exchanged(more, 1);
			more = more + exchanged(more, 2);
			sum[h] = FMA(sum[h], by, more);
#pragma unroll
			for (int n = 0; n < NT; n++) out[n][2 * h] = out[n][2 * h] * by, out[n][2 * h + 1] = out[n][2 * h + 1] * by;
			split(e[0], e[1], &high[h], &low[h]);
			split(e[2], e[3], &high[h + 2], &low[h + 2]);
		}
		copies_wait<0>();
		WARP_BARRIER();
#pragma unroll
		for (int n = 0; n < NT; n += 2) {
			if (8 * n >= value_dim) continue;
			u32 b[4]; // two tiles of 8 channels: positions 0 to 7, then 8 to 15
			const int key = lane % 16, chunk = n + lane / 16;
			load_turned(b, &values[warp][key][chunk ^ (key & 7)]);
#pragma unroll
			for (int i = 0; i < 2; i++) {
				multiply(out[n + i], low[0], low[1], low[2], low[3], b[2 * i], b[2 * i + 1]);
				multiply(out[n + i], high[0], high[1], high[2], high[3], b[2 * i], b[2 * i + 1]);
			}
		}
		WARP_BARRIER();
	}
	const int part = first + warp;
	if (begin >= hi) return;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int head = g + 8 * h;
		if (head >= heads) continue;
		float *to = p.parts + (((i64)row * p.heads + kv_head * p.group + head0 + head) * p.most + part) * (value_dim + 2);
		if (t == 0) to[0] = top[h], to[1] = sum[h];
#pragma unroll
		for (int n = 0; n < NT; n++)
			for (int i = 0; i < 2; i++)
				if (8 * n + 2 * t + i < value_dim) to[2 + 8 * n + 2 * t + i] = out[n][2 * h + i];
	}
}

// attend_add has a block for each head of a row, which adds its parts: SHARES of them at a time get their factors
// together.
DEVICE void attend_add(const Attention &p) {
	enum { SHARES = 256 };
	SHARED float share[SHARES];
	const i64 row = BLOCK_X, head = BLOCK_Y;
	const int lo = p.rows[3 * row], hi = p.rows[3 * row + 1], end = (hi - 1) / PART - lo / PART + 1, each = (int)p.value_dim + 2;
	DEPEND();
	const float *parts = p.parts + (row * p.heads + head) * p.most * each;
	const float sink = p.sinks ? load(p.sinks + head * size_of(p.sink_format), p.sink_format) : 0;
	float top = p.sinks ? sink : -INFINITE;
	for (int i = THREAD % 32; i < end; i += 32) top = parts[(i64)i * each] > top || top != top ? parts[(i64)i * each] : top;
	for (int mask = 16; mask > 0; mask /= 2) top = __builtin_fmaxf(top, exchanged(top, mask));
	float sum = p.sinks ? exponential2((sink - top) * 1.44269504f) : 0, v[2] = {};
	for (int first = 0; first < end; first += SHARES) {
		const int n = end - first < SHARES ? end - first : SHARES;
		for (int i = THREAD; i < n; i += THREADS) share[i] = exponential2((parts[(i64)(first + i) * each] - top) * 1.44269504f);
		BARRIER();
		const float *at = parts + (i64)first * each;
#pragma unroll 4
		for (int i = 0; i < n; i++, at += each) {
			sum = FMA(at[1], share[i], sum);
#pragma unroll
			for (int j = 0; j < 2; j++)
				if (THREAD + j * THREADS < p.value_dim) v[j] = FMA(at[2 + THREAD + j * THREADS], share[i], v[j]);
		}
		BARRIER();
	}
	const float by = 1 / sum;
	for (int j = 0; j < 2; j++)
		if (THREAD + j * THREADS < p.value_dim) p.y[row * p.ys + head * p.value_dim + THREAD + j * THREADS] = v[j] * by;
}
