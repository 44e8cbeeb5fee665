// Products of single tokens, each with its own weight, such as a token's routed experts. Their bits
// are those of products.h. A block computes neighbouring tiles of rows. Their weights pass through
// a queue in shared memory, which is filled ahead: while a tile's sums are added, and before the
// previous kernel has ended.
#pragma once
#include "products.h"

// A Single is the product of one token and a weight, and its result. `slot` is the number of
// different tokens before it.
struct Single {
	const u8 *weight; // the first column of row 0
	i64 stride;       // bytes from a row to the next one
	const float *x;
	float *y;
	const u8 *bias;
	i64 bias_step, rows, slot;
};

enum { SINGLES = 16 };

// Alone are products whose bfloat16 weights have the same shape. `each` is the number of tiles of a
// part or, with a gate, of a pair of parts. With a gate, pair i makes row i of `gated`.
struct Alone {
	Single parts[SINGLES];
	i64 cols, each, tiles, blocks, bias_format;
	float *gated;
	i64 gated_stride, act, limit;
};

// QUEUED is the number of steps in a queue. A block reads a tile in turns of COLUMNS columns.
enum { QUEUED = 8, COLUMNS = TURN * WARPS };

// alone_part returns the part of a tile, or the first one of its pair, and makes `tile` relative to
// that part.
template <bool GATED> DEVICE int alone_part(const Alone &p, i64 *tile) {
	const int i = (int)*tile / (int)p.each;
	*tile -= i * p.each;
	return GATED ? 2 * i : i;
}

// A Queue has the weights of a thread: in each step, eight columns of rows g and g + 8 of a tile.
// Other threads do not read them, so a thread waits only for its own copies.
template <bool GATED> struct Queue {
	const Alone &p;
	const Single *parts;
	Vector (*slots)[2][32 * WARPS];
	const u8 *weights[2]; // the thread's first column of the turn
	i64 tile, end;        // the tile that is copied, and the end of the block's
	int column, cols, turns, turn;

	DEVICE_MEMBER Queue(const Alone &p, const Single *parts, void *memory, i64 begin, i64 end, int turns) : p(p), parts(parts), slots((Vector(*)[2][32 * WARPS])memory), tile(begin), end(end), cols((int)p.cols), turns(turns) { aim(); }
	// aim sets the queue to the first column of a tile. Rows beyond the last one read the last row:
	// their sums are not stored.
	DEVICE_MEMBER void aim() {
		turn = 0, column = THREAD / 32 * TURN + THREAD % 4 * 8;
		if (tile >= end) return;
		i64 at = tile;
		const int which = alone_part<GATED>(p, &at);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const Single &o = parts[GATED ? which + i : which];
			const i64 r = (GATED ? 8 * at : 16 * at + 8 * i) + THREAD % 32 / 4;
			weights[i] = o.weight + (r < o.rows ? r : o.rows - 1) * o.stride + 2 * column;
		}
	}
	// fetch starts copying step `step` of the turn, with zeros beyond the last column.
	DEVICE_MEMBER void fetch(int slot, int step) {
		if (tile < end) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				if (column + 32 * step < cols) copy_once(&slots[slot][i][THREAD], weights[i] + 64 * step);
				else slots[slot][i][THREAD] = Vector{};
			}
		}
		copies_made();
		if (step < STEPS - 1) return;
		weights[0] += 2 * COLUMNS, weights[1] += 2 * COLUMNS, column += COLUMNS;
		if (++turn == turns) tile++, aim();
	}
};

// stored_sum adds the sums of the warps in ascending order. It stores and returns the result of a
// row.
DEVICE float stored_sum(const Alone &p, const Single &o, i64 r, const float (*sums)[16], int in) {
	float sum = 0;
	for (int w = 0; w < WARPS; w++) sum = sum + sums[w][in];
	if (o.bias) sum = biased(sum, o.bias + r * o.bias_step, p.bias_format);
	return o.y[r] = sum;
}

// finish stores row THREAD of a tile.
template <bool GATED> DEVICE void finish(const Alone &p, const Single *parts, i64 tile, const float (*sums)[16]) {
	const int which = alone_part<GATED>(p, &tile);
	const i64 r = tile * (GATED ? 8 : 16) + THREAD;
	if (r >= parts[which].rows) return;
	const float sum = stored_sum(p, parts[which], r, sums, THREAD);
	if (!GATED) return;
	const float up = stored_sum(p, parts[which + 1], r, sums, THREAD + 8);
	p.gated[which / 2 * p.gated_stride + r] = gate_by(sum, up, p.act, scalar(p.limit));
}

// alone has a block for each multiprocessor, or for each tile if there are fewer. A block's dynamic
// shared memory holds its queue, and the different tokens of its tiles in bfloat16, padded to whole
// turns.
template <bool GATED> DEVICE void alone(const Alone &p) {
	SHARED Single parts[SINGLES];
	SHARED float sums[2][WARPS][16];
	TRIGGER();
#pragma unroll
	for (int i = 0; i < SINGLES; i++) // an index that is no constant would put all of p into local memory
		if (THREAD == i) parts[i] = p.parts[i];
	BARRIER();
	const int cols = (int)p.cols, turns = (cols + COLUMNS - 1) / COLUMNS, warp = THREAD / 32, lane = THREAD % 32;
	const i64 begin = BLOCK_X * p.tiles / p.blocks, end = (BLOCK_X + 1) * p.tiles / p.blocks;
	Vector *tokens = (Vector *)(dynamic_shared + QUEUED * 2 * sizeof(Vector) * 32 * WARPS);
	Queue<GATED> queue(p, parts, dynamic_shared, begin, end, turns);
#pragma unroll
	for (int i = 0; i < QUEUED; i++) queue.fetch(i, i % STEPS); // weights depend on no kernel
	i64 at = begin, last = end - 1;
	const int first = alone_part<GATED>(p, &at), least = (int)parts[first].slot, most = (int)parts[alone_part<GATED>(p, &last)].slot;
	AWAIT();
	for (int slot = least, i = first; slot <= most; slot++) {
		Vector *to = tokens + (slot - least) * turns * COLUMNS / 8;
		while (parts[i].slot < slot) i++;
		for (int j = THREAD; j < turns * COLUMNS / 8; j += 32 * WARPS) to[j] = j < cols / 8 ? eight_rounded(parts[i].x + 8 * j, 8 * j, cols) : Vector{};
	}
	BARRIER();
	int slot = 0, odd = 0;
	for (i64 tile = begin; tile < end; tile++, odd ^= 1) {
		float c[4] = {};
		i64 at = tile;
		const Vector *b = tokens + (parts[alone_part<GATED>(p, &at)].slot - least) * turns * COLUMNS / 8 + warp * TURN / 8 + lane % 4;
		for (int turn = 0; turn < turns; turn++, slot = slot == QUEUED - STEPS ? 0 : slot + STEPS, b += COLUMNS / 8) {
#pragma unroll
			for (int step = 0; step < STEPS; step++) {
				copies_wait<QUEUED - 1>();
				const Vector upper = queue.slots[slot + step][0][THREAD], lower = queue.slots[slot + step][1][THREAD], x = b[4 * step];
#pragma unroll
				for (int h = 0; h < 4; h += 2) multiply(c, upper.v[h], lower.v[h], upper.v[h + 1], lower.v[h + 1], x.v[h], x.v[h + 1]);
				queue.fetch(slot + step, step);
			}
		}
		if (lane % 4 == 0) sums[odd][warp][lane / 4] = c[0], sums[odd][warp][8 + lane / 4] = c[2];
		BARRIER();
		if (THREAD < (GATED ? 8 : 16)) finish<GATED>(p, parts, tile, sums[odd]);
	}
}
