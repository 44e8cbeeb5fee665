// Attention for `auto` over keys and values in bfloat16. A context is divided into parts of PART
// positions. A warp reads a part once for all query heads that share its keys. Another kernel adds
// the parts in ascending order. A row's result thus depends only on its own positions. Queries and
// weights are each split into a sum of two bfloat16 numbers, so they keep about 8 bits more than
// one.
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
	i64 page_shift, group, dim, value_dim, scale, softcap;
	const u8 *sinks;
	i64 sink_format;
	float *parts;
	i64 heads, most; // most parts of a tile's rows
	const int *tiles; // the first row of each, and how many
	i64 tile_count;
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

// any_of_warp reports whether v holds for a thread of the warp. The simulated driver checks all
// threads of the block.
DEVICE bool any_of_warp(bool v) {
#ifdef __CUDA__
	return __nvvm_vote_any_sync(0xffffffff, v);
#else
	sim_lane[0][0][sim_thread] = v;
	sim_barrier();
	bool any = false;
	for (int i = 0; i < THREADS; i++) any = any || sim_lane[0][0][i] != 0;
	sim_barrier();
	return any;
#endif
}

// visible_pair has ones where a pair of numbers, for two neighbouring positions, is within [from,
// to).
DEVICE u32 visible_pair(int pos, int from, int to) {
	return (pos >= from && pos < to ? 0xffffu : 0) | (pos + 1 >= from && pos + 1 < to ? 0xffff0000u : 0);
}

// split rounds two numbers to sums of two bfloat16 numbers each.
DEVICE void split(float a, float b, u32 *high, u32 *low) {
	*high = pack(a, b);
	*low = pack(a - of_bits(*high << 16), b - of_bits(*high & 0xffff0000));
}

// swizzled is the place of a chunk in a row of queries. It makes neighbouring rows use different
// banks.
DEVICE int swizzled(int row, int chunk) { return chunk ^ (row & 1) << 2; }

// A Tile is the work of a warp: up to 16 queries of one key/value head. A query is one head of one
// row. The tile's rows are consecutive and have the same pages. `rows` has for each row its first
// visible position, the end of its positions, and the start of its pages in `tables`.
struct Tile {
	int row, count, kv_head, head0, heads, each; // rows, and query heads from head0 on; each: heads of a row
	int lo, hi, least_to, most_from;             // what a row sees, and what all of them see
};

DEVICE Tile tile_of(const Attention &p, int tile, int block_y) {
	const int head_tiles = (int)((p.group + QUERIES - 1) / QUERIES), head0 = block_y % head_tiles * QUERIES, left = (int)p.group - head0;
	const int row = p.tiles[2 * tile], count = p.tiles[2 * tile + 1], *first = p.rows + 3 * row, *last = p.rows + 3 * (row + count - 1);
	return {row, count, block_y / head_tiles, head0, left < QUERIES ? left : QUERIES, p.group < QUERIES ? (int)p.group : QUERIES, first[0], last[1], first[1], last[0]};
}

// An Attend computes the parts of a tile. DIM and VALUES are the widths that its memory is made
// for. SLOTS is the number of steps whose values are copied ahead.
template <int DIM, int VALUES, int SLOTS> struct Attend {
	enum { NT = VALUES / 8, STEPS_OF_PART = PART / KEYS, TURNS = KEYS * VALUES / 8 / 32 };
	const Attention &p;
	const Tile tile;
	Vector (*queries)[QUERIES][DIM / 8], (*slots)[KEYS][VALUES / 8];
	const int *table;
	int lane, g, t, begin;
	int row_of[2], head_of[2], from[2], to[2]; // of the thread's queries g and g + 8; a head of `heads` is none
	float out[NT][4], top[2], sum[2];
	Vector keys[2][DIM / 32];

	DEVICE_MEMBER Attend(const Attention &p, const Tile &tile, void *queries, void *slots) : p(p), tile(tile), queries((Vector(*)[QUERIES][DIM / 8])queries), slots((Vector(*)[KEYS][VALUES / 8])slots) {
		table = p.tables + p.rows[3 * tile.row + 2], lane = THREAD % 32, g = lane / 4, t = lane % 4;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			row_of[h] = tile.row + (g + 8 * h) / tile.each, head_of[h] = (g + 8 * h) % tile.each;
			if (row_of[h] >= tile.row + tile.count || head_of[h] >= tile.heads) row_of[h] = tile.row, head_of[h] = tile.heads;
			from[h] = p.rows[3 * row_of[h]], to[h] = p.rows[3 * row_of[h] + 1];
		}
	}
	// page returns the page of a position and the token's offset there, or null if no row sees the
	// position.
	DEVICE_MEMBER const u8 *place(const u8 *pages, i64 page, i64 head, i64 token, int pos) {
		if (pos < tile.lo || pos >= tile.hi) return nullptr;
		return pages + table[pos >> p.page_shift] * page + tile.kv_head * head + (pos & ((1 << p.page_shift) - 1)) * token;
	}
	DEVICE_MEMBER void fetch_keys(int step) {
		const u8 *key[2];
#pragma unroll
		for (int n = 0; n < 2; n++) key[n] = place(p.k, p.k_page, p.k_head, p.k_token, begin + step * KEYS + 8 * n + g);
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int j = 0; j < DIM / 32; j++) keys[n][j] = key[n] && 32 * j + 8 * t < p.dim ? *(const Vector *)(key[n] + 2 * (32 * j + 8 * t)) : Vector{};
	}
	DEVICE_MEMBER void fetch_values(int step) {
		const u8 *value[TURNS];
#pragma unroll
		for (int i = 0; i < TURNS; i++) value[i] = place(p.v, p.v_page, p.v_head, p.v_token, begin + step * KEYS + (32 * i + lane) / (VALUES / 8));
#pragma unroll
		for (int i = 0; i < TURNS; i++) {
			const int key = (32 * i + lane) / (VALUES / 8), chunk = lane % (VALUES / 8);
			Vector *at = &slots[step % SLOTS][key][chunk ^ (key & 7)];
			if (value[i] && 8 * chunk < p.value_dim) copy_beside(at, value[i] + 16 * chunk);
			else *at = Vector{};
		}
	}
	// split_queries splits queries of the tile. SHARED_BY threads share the work, and this is one
	// of them.
	template <int SHARED_BY> DEVICE_MEMBER void split_queries(int thread) {
#pragma unroll 8
		for (int turn = 0; turn < QUERIES * DIM / 2 / SHARED_BY; turn++) {
			const int i = SHARED_BY * turn + thread, m = i / (DIM / 2), c = i % (DIM / 2) * 2, r = m / tile.each, head = m - r * tile.each;
			const float *in = p.q + (tile.row + r) * p.qs + (tile.kv_head * p.group + tile.head0 + head) * p.dim + c;
			const bool in_range = r < tile.count && head < tile.heads && c < p.dim; // dim is even
			split(in_range ? in[0] : 0, in_range ? in[1] : 0, &queries[0][m][swizzled(m, c / 8)].v[c % 8 / 2], &queries[1][m][swizzled(m, c / 8)].v[c % 8 / 2]);
		}
	}
	// score multiplies queries with the keys that have arrived. A thread has queries g and g + 8,
	// each at positions 2t, 2t + 1, 2t + 8 and 2t + 9 of a step.
	DEVICE_MEMBER void score(int step, float (*e)[4]) {
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
#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const int pos = begin + step * KEYS + 8 * (i / 2) + 2 * t + i % 2;
				e[h][i] = (s[i / 2][2 * h + i % 2] + rest[i / 2][2 * h + i % 2]) * scalar(p.scale);
				if (p.softcap) e[h][i] = scalar(p.softcap) * hyperbolic_tangent(e[h][i]);
				if (pos < from[h] || pos >= to[h]) e[h][i] = -INFINITE;
			}
	}
	DEVICE_MEMBER float greatest(const float *e) {
		float most = -INFINITE;
#pragma unroll
		for (int i = 0; i < 4; i++) most = e[i] > most ? e[i] : most;
		most = __builtin_fmaxf(most, exchanged(most, 1));
		return __builtin_fmaxf(most, exchanged(most, 2));
	}
	// weigh converts scores to weights, and rescales the earlier sums.
	DEVICE_MEMBER void weigh(float (*scores)[4], u32 *high, u32 *low) {
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float *e = scores[h], more = 0;
			const float most = greatest(e), before = top[h];
			top[h] = most > before ? most : before;
			const float by = top[h] == -INFINITE ? 1 : exponential2((before - top[h]) * 1.44269504f);
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
	}
	DEVICE_MEMBER bool finite(int step) {
		bool all = true;
#pragma unroll
		for (int i = 0; i < TURNS; i++)
#pragma unroll
			for (int j = 0; j < 4; j++) {
				const u32 pair = slots[step % SLOTS][(32 * i + lane) / (VALUES / 8)][lane % (VALUES / 8)].v[j];
				all = all && (pair & 0x7f80) != 0x7f80 && (pair & 0x7f800000) != 0x7f800000;
			}
		return all;
	}
	// add adds weighted values. A weight of 0 times a value that is not finite is not 0, so rows
	// that do not see such a value's position skip it.
	DEVICE_MEMBER void add(int step, const u32 *high, const u32 *low) {
		const int at = begin + step * KEYS, most = QUERIES / tile.each; // rows, some of which the tile may not have
		const bool apart = any_of_warp(tile.count > 1 && (at + KEYS > tile.least_to || at < tile.most_from) && !finite(step));
		for (int i = apart ? 0 : most - 1; i < most; i++) {
			const int row = tile.row + i, *sees = p.rows + 3 * (i < tile.count ? row : tile.row);
#pragma unroll
			for (int n = 0; n < NT; n += 2) {
				if (8 * n >= p.value_dim) continue;
				u32 b[4]; // two tiles of 8 channels: positions 0 to 7, then 8 to 15
				const int key = lane % 16, chunk = n + lane / 16;
				load_turned(b, &slots[step % SLOTS][key][chunk ^ (key & 7)]);
				if (apart)
#pragma unroll
					for (int half = 0; half < 4; half++) b[half] &= visible_pair(at + 2 * t + half % 2 * 8, sees[0], sees[1]);
#pragma unroll
				for (int tile = 0; tile < 2; tile++) {
					float *sums = out[n + tile], c[4] = {sums[0], sums[1], sums[2], sums[3]};
					multiply(c, low[0], low[1], low[2], low[3], b[2 * tile], b[2 * tile + 1]);
					multiply(c, high[0], high[1], high[2], high[3], b[2 * tile], b[2 * tile + 1]);
#pragma unroll
					for (int j = 0; j < 4; j++)
						if (!apart || row_of[j / 2] == row) sums[j] = c[j];
				}
			}
		}
	}
	// start begins the part whose first position is `begin`: it starts copying the keys of the
	// first step and the values of SLOTS steps.
	DEVICE_MEMBER void start() {
		fetch_keys(0);
#pragma unroll 1
		for (int step = 0; step < SLOTS; step++) fetch_values(step), copies_made();
	}
	// part computes the started part: out, top and sum.
	DEVICE_MEMBER void part() {
#pragma unroll
		for (int n = 0; n < NT; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
		top[0] = top[1] = -INFINITE, sum[0] = sum[1] = 0;
#pragma unroll 1
		for (int step = 0; step < STEPS_OF_PART; step++) {
			float e[2][4];
			u32 high[4], low[4];
			score(step, e);
			if (step + 1 < STEPS_OF_PART) fetch_keys(step + 1);
			weigh(e, high, low);
			copies_wait<SLOTS - 1>();
			WARP_BARRIER();
			add(step, high, low);
			WARP_BARRIER();
			if (step + SLOTS < STEPS_OF_PART) fetch_values(step + SLOTS);
			copies_made();
		}
	}
	// has reports whether query h of the thread exists and sees a position of the part.
	DEVICE_MEMBER bool has(int h) { return head_of[h] < tile.heads && begin < to[h] && begin + PART > from[h]; }
	DEVICE_MEMBER i64 head(int h) { return tile.kv_head * p.group + tile.head0 + head_of[h]; }
};

// attend_parts: BLOCK_X is a tile and four of its parts, BLOCK_Y its key/value head and query
// heads. Each warp computes one part.
template <int DIM, int VALUES, int SLOTS> DEVICE void attend_parts(const Attention &p) {
	const int blocks = (int)((p.most + ATTEND_WARPS - 1) / ATTEND_WARPS), first = (int)(BLOCK_X % blocks) * ATTEND_WARPS, warp = THREAD / 32;
	u8 *slots = dynamic_shared + 2 * QUERIES * DIM * 2;
	Attend<DIM, VALUES, SLOTS> a(p, tile_of(p, (int)(BLOCK_X / blocks), (int)BLOCK_Y), dynamic_shared, slots + warp * SLOTS * KEYS * VALUES * 2);
	DEPEND();
	a.begin = (a.tile.lo / PART + first) * PART;
	if (a.begin >= a.tile.hi) return; // the tile has no such parts
	a.begin += warp * PART;
	a.start();
	a.template split_queries<32 * ATTEND_WARPS>(THREAD);
	BARRIER();
	a.part();
#pragma unroll
	for (int h = 0; h < 2; h++) {
		if (!a.has(h)) continue;
		float *at = p.parts + ((a.row_of[h] * p.heads + a.head(h)) * p.most + a.begin / PART - a.from[h] / PART) * (p.value_dim + 2);
		if (a.t == 0) at[0] = a.top[h], at[1] = a.sum[h];
#pragma unroll
		for (int n = 0; n < VALUES / 8; n++)
			for (int i = 0; i < 2; i++)
				if (8 * n + 2 * a.t + i < p.value_dim) at[2 + 8 * n + 2 * a.t + i] = a.out[n][2 * h + i];
	}
}

// attend_rows has a warp for each tile. It gives the same bits as attend_parts and attend_add: it
// first finds the maximum scores, and then adds the parts in ascending order.
template <int DIM, int VALUES, int SLOTS> DEVICE void attend_rows(const Attention &p) {
	const int warp = THREAD / 32, last = (int)p.tile_count - 1, tile = (int)BLOCK_X * ATTEND_WARPS + warp;
	u8 *slots = dynamic_shared + ATTEND_WARPS * 2 * QUERIES * DIM * 2;
	Attend<DIM, VALUES, SLOTS> a(p, tile_of(p, tile < last ? tile : last, (int)BLOCK_Y), dynamic_shared + warp * 2 * QUERIES * DIM * 2, slots + warp * SLOTS * KEYS * VALUES * 2);
	// All warps of a block loop over the same number of parts. Some see no position of a part.
	int lo = a.tile.lo, hi = a.tile.hi;
#pragma unroll
	for (int i = 0; i < ATTEND_WARPS; i++) {
		const int at = (int)BLOCK_X * ATTEND_WARPS + i < last ? (int)BLOCK_X * ATTEND_WARPS + i : last;
		const int row = p.tiles[2 * at], end = row + p.tiles[2 * at + 1] - 1, from = p.rows[3 * row], to = p.rows[3 * end + 1];
		lo = from < lo ? from : lo, hi = to > hi ? to : hi;
	}
	DEPEND();
	a.template split_queries<32>(a.lane);
	WARP_BARRIER();
	float top[2], sum[2], all[VALUES / 8][4] = {};
#pragma unroll
	for (int h = 0; h < 2; h++) top[h] = p.sinks ? load(p.sinks + (a.head_of[h] < a.tile.heads ? a.head(h) : 0) * size_of(p.sink_format), p.sink_format) : -INFINITE;
	const float sinks[2] = {top[0], top[1]};
	a.begin = lo / PART * PART;
	a.fetch_keys(0);
#pragma unroll 1
	for (; a.begin < hi; a.begin += KEYS) {
		float e[2][4];
		a.score(0, e);
		a.fetch_keys(1);
#pragma unroll
		for (int h = 0; h < 2; h++) top[h] = __builtin_fmaxf(top[h], a.greatest(e[h]));
	}
#pragma unroll
	for (int h = 0; h < 2; h++) sum[h] = p.sinks ? exponential2((sinks[h] - top[h]) * 1.44269504f) : 0;
#pragma unroll 1
	for (a.begin = lo / PART * PART; a.begin < hi; a.begin += PART) {
		a.start();
		a.part();
#pragma unroll
		for (int h = 0; h < 2; h++) {
			if (!a.has(h)) continue;
			const float share = exponential2((a.top[h] - top[h]) * 1.44269504f);
			sum[h] = FMA(a.sum[h], share, sum[h]);
#pragma unroll
			for (int n = 0; n < VALUES / 8; n++)
#pragma unroll
				for (int i = 0; i < 2; i++) all[n][2 * h + i] = FMA(a.out[n][2 * h + i], share, all[n][2 * h + i]);
		}
	}
	if (tile > last) return;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		if (a.head_of[h] >= a.tile.heads) continue;
		const float by = 1 / sum[h];
#pragma unroll
		for (int n = 0; n < VALUES / 8; n++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				if (8 * n + 2 * a.t + i < p.value_dim) p.y[a.row_of[h] * p.ys + a.head(h) * p.value_dim + 8 * n + 2 * a.t + i] = all[n][2 * h + i] * by;
	}
}

// attend_add has a block for each head of a row, which adds its parts. It computes the factors of
// SHARES parts at a time.
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
#pragma unroll 8
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
