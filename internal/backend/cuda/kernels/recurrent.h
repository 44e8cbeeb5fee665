// Layers with a state for each sequence, in the order of sums of the CPU's kernels. A thread
// processes the tokens of a sequence for one channel, or for one column of a head's state, which no
// other thread accesses. Meanwhile the states of recurrences are in shared memory.
#pragma once
#include "math.h"

// A Span is the rows of one sequence: `rows` rows from `first`. from and to are slots of states, or
// -1. If `save_after` is not 0, the state after that many rows is also copied to slot `save`.
struct Span {
	int first, rows, from, to, save_after, save;
};

// A Conv is a convolution of one channel: x and the states are those of the channel.
struct Conv {
	const float *x;
	i64 xs;
	float *memory; // of the first slot
	i64 stride, channels, kernel;
};

// conv_input sets *v to token t of a span, or to an input in the state if t is before the span. It
// returns false for a zero.
DEVICE bool conv_input(const Conv &o, const Span &s, i64 t, float *v) {
	if (t >= 0) *v = o.x[(s.first + t) * o.xs];
	else if (s.from >= 0) *v = o.memory[s.from * o.stride + (o.kernel - 1 + t) * o.channels];
	return t >= 0 || s.from >= 0;
}

// conv_keep writes the last inputs of n tokens to a slot. It may be the slot that is read.
DEVICE void conv_keep(const Conv &o, const Span &s, i64 n, i64 slot) {
	for (i64 r = 0; r + 1 < o.kernel; r++) {
		float v = 0;
		conv_input(o, s, n - o.kernel + 1 + r, &v);
		o.memory[slot * o.stride + r * o.channels] = v;
	}
}

// short_conv has a thread for each channel of a span.
KERNEL short_conv(float *y, i64 ys, const float *x, i64 xs, const u8 *weight, i64 weight_format, const u8 *bias, i64 bias_format, float *memory, i64 stride, const Span *spans, i64 kernel, i64 act, i64 channels) {
	const i64 c = BLOCK_X * THREADS + THREAD;
	if (c >= channels) return;
	const Span s = spans[BLOCK_Y];
	const Conv o = {x + c, xs, memory + c, stride, channels, kernel};
	for (i64 t = 0; t < s.rows; t++) {
		float sum = bias ? load(bias + c * size_of(bias_format), bias_format) : 0, in;
		for (i64 j = 0; j < kernel; j++)
			if (conv_input(o, s, t - kernel + 1 + j, &in)) sum = sum + load(weight + (c * kernel + j) * size_of(weight_format), weight_format) * in;
		y[(s.first + t) * ys + c] = activate(sum, act);
	}
	if (s.save_after > 0) conv_keep(o, s, s.save_after, s.save);
	if (s.to >= 0) conv_keep(o, s, s.rows, s.to);
}
EXPORT(short_conv)

// A Column is one column of a head's state. It is in shared memory, next to the columns of the
// block's other threads, while its thread processes the tokens of a span.
struct Column {
	float *at;
	i64 step, rows;
};

// column_begin reads the column's value before the first token of a span. memory is the column of
// the first slot.
DEVICE void column_begin(const Column &c, const float *memory, i64 stride, const Span &s, i64 step) {
	const float *from = memory + s.from * stride;
#pragma unroll 16
	for (i64 i = 0; i < c.rows; i++) c.at[i * c.step] = s.from < 0 ? 0 : from[i * step];
}

// column_keep copies a column to a slot.
DEVICE void column_keep(const Column &c, float *memory, i64 stride, i64 slot, i64 step) {
	float *to = memory + slot * stride;
#pragma unroll 16
	for (i64 i = 0; i < c.rows; i++) to[i * step] = c.at[i * c.step];
}

// column_read returns the dot product of a column with k. If fades is not null, it first multiplies
// the column by fades.
DEVICE float column_read(const Column &c, const float *k, const float *fades) {
	float sum = 0;
	if (fades)
#pragma unroll 8
		for (i64 i = 0; i < c.rows; i++) c.at[i * c.step] = c.at[i * c.step] * fades[i];
#pragma unroll 8
	for (i64 i = 0; i < c.rows; i++) sum = sum + k[i] * c.at[i * c.step];
	return sum;
}

// column_step decays a column, adds k times change to it, and returns its dot product with q.
DEVICE float column_step(const Column &c, const float *k, const float *q, float change, float decay) {
	float sum = 0;
#pragma unroll 8
	for (i64 i = 0; i < c.rows; i++) {
		const float v = c.at[i * c.step] * decay + k[i] * change;
		c.at[i * c.step] = v;
		sum = sum + q[i] * v;
	}
	return sum;
}

// decay_rate is exp(a_log). If rates is set, a_log holds the negative of that value already.
DEVICE double decay_rate(const u8 *a_log, i64 format, i64 i, i64 rates) {
	const double a = load(a_log + i * size_of(format), format);
	return rates ? -a : accurate_exponential(a);
}

// A Decay has the inputs of a head's decays.
struct Decay {
	double rate;
	const u8 *bias;
	i64 format;
	double floor; // 0 for none
};

// decay_of is the decay for number i of the bias.
DEVICE float decay_of(const Decay &d, float a, i64 i) {
	const double at = (double)a + (double)load(d.bias + i * size_of(d.format), d.format);
	if (d.floor != 0) return (float)accurate_exponential(d.floor * divide(1.0, 1.0 + accurate_exponential(-(d.rate * at))));
	return (float)accurate_exponential(-d.rate * softplus(at));
}

// shorten sets by to the factors of a key and a query that make their lengths 1 and scale. All
// threads of the block must call it. Each `lanes` threads have all sums.
DEVICE void shorten(float *by, const float *k, const float *q, i64 dim, double scale, int lanes) {
	float sum[8] = {};
	for (i64 i = THREAD % lanes; i < dim; i += lanes) {
		sum[0] = FMA(k[i], k[i], sum[0]);
		sum[1] = FMA(q[i], q[i], sum[1]);
	}
	fold8(sum, lanes);
	by[0] = (float)divide(1.0, root((double)sum[0] + 1e-6));
	by[1] = (float)divide(scale, root((double)sum[1] + 1e-6));
}

// delta_rule has one-warp blocks for the columns of a head: `parts` blocks of up to `columns`
// columns each. With by_channel each row of a state has its own decay.
KERNEL delta_rule(float *y, i64 ys, const float *q, i64 qs, const float *k, i64 ks, const float *v, i64 vs, const float *a, i64 as, const float *b, i64 bs,
                  const u8 *a_log, i64 a_log_format, const u8 *dt_bias, i64 dt_format, float *memory, i64 stride, const Span *spans,
                  i64 key_heads, i64 value_heads, i64 key_dim, i64 value_dim, i64 rates, i64 tiled, i64 by_channel, i64 floor, i64 most, i64 columns, i64 parts, i64 lanes) {
	const i64 head = BLOCK_X / parts, j = BLOCK_X % parts * columns + THREAD, key = (tiled ? head % key_heads : head / (value_heads / key_heads)) * key_dim;
	const bool whole = THREAD < columns && j < value_dim;
	const Span s = spans[BLOCK_Y];
	float *slots = memory + head * key_dim * value_dim + j, *shared = (float *)dynamic_shared;
	float *keys = shared + key_dim * columns, *queries = keys + key_dim, *fades = queries + key_dim;
	const Column c = {shared + THREAD, columns, key_dim};
	if (whole) column_begin(c, slots, stride, s, value_dim);
	const double scale = divide(1.0, root((double)key_dim));
	const Decay d = {decay_rate(a_log, a_log_format, head, rates), dt_bias, dt_format, scalar(floor)};
	for (i64 t = 0; t < s.rows; t++) {
		const i64 r = s.first + t;
		const float *kt = k + r * ks + key, *qt = q + r * qs + key;
		float by[2];
		shorten(by, kt, qt, key_dim, scale, (int)lanes);
		BARRIER(); // all have read those of the token before
		for (i64 i = THREAD; i < key_dim; i += THREADS) {
			keys[i] = kt[i] * by[0];
			queries[i] = qt[i] * by[1];
			if (by_channel) fades[i] = decay_of(d, a[r * as + head * key_dim + i], head * key_dim + i);
		}
		BARRIER();
		if (!whole) continue;
		const float decay = by_channel ? 1.f : decay_of(d, a[r * as + head], head), strength = activate(b[r * bs + head], SIGMOID) * scalar(most);
		const float seen = column_read(c, keys, by_channel ? fades : 0);
		const float change = strength * (v[r * vs + head * value_dim + j] - decay * seen);
		y[r * ys + head * value_dim + j] = column_step(c, keys, queries, change, decay);
		if (t + 1 == s.save_after) column_keep(c, slots, stride, s.save, value_dim);
	}
	if (whole && s.to >= 0) column_keep(c, slots, stride, s.to, value_dim);
}
EXPORT(delta_rule)

// state_space has one-warp blocks for the columns of a head: `parts` blocks of up to `columns`
// columns each.
KERNEL state_space(float *y, i64 ys, const float *x, i64 xs, const float *b, i64 bs, const float *c, i64 cs, const float *dt, i64 dts,
                   const u8 *a_log, i64 a_log_format, const u8 *dt_bias, i64 dt_format, const u8 *d, i64 d_format, float *memory, i64 stride, const Span *spans,
                   i64 heads, i64 groups, i64 head_dim, i64 state_dim, i64 step_min, i64 step_max, i64 rates, i64 columns, i64 parts) {
	const i64 head = BLOCK_X / parts, j = BLOCK_X % parts * columns + THREAD, group = head / (heads / groups) * state_dim;
	const bool whole = THREAD < columns && j < head_dim;
	const Span s = spans[BLOCK_Y];
	float *slots = memory + head * head_dim * state_dim + j, *shared = (float *)dynamic_shared;
	float *ins = shared + state_dim * columns, *outs = ins + state_dim;
	const Column state = {shared + THREAD, columns, state_dim};
	if (whole) column_begin(state, slots, stride, s, head_dim);
	const double rate = decay_rate(a_log, a_log_format, head, rates), least = scalar(step_min), greatest = scalar(step_max);
	const double bias = load(dt_bias + head * size_of(dt_format), dt_format);
	const float share = load(d + head * size_of(d_format), d_format);
	for (i64 t = 0; t < s.rows; t++) {
		const i64 r = s.first + t;
		BARRIER(); // all have read those of the token before
		for (i64 i = THREAD; i < state_dim; i += THREADS) {
			ins[i] = b[r * bs + group + i];
			outs[i] = c[r * cs + group + i];
		}
		BARRIER();
		if (!whole) continue;
		double step = softplus((double)dt[r * dts + head] + bias);
		step = step < least ? least : step;
		step = step > greatest ? greatest : step;
		const float in = x[r * xs + head * head_dim + j];
		const float sum = column_step(state, ins, outs, (float)step * in, (float)accurate_exponential(-rate * step));
		y[r * ys + head * head_dim + j] = sum + share * in;
		if (t + 1 == s.save_after) column_keep(state, slots, stride, s.save, head_dim);
	}
	if (whole && s.to >= 0) column_keep(state, slots, stride, s.to, head_dim);
}
EXPORT(state_space)

// scan_keep copies the states of a block's channels to a slot, n numbers each. All threads must
// call it.
DEVICE void scan_keep(float *to, const float *state, i64 channels, i64 n, i64 pitch) {
	BARRIER();
	for (i64 i = THREAD; i < channels * n; i += THREADS) to[i] = state[i / n * pitch + i % n];
	BARRIER();
}

// selective_scan has a thread for each channel of a span, `columns` in a block. The numbers of a channel lie side by side
// in memory; in shared memory they are an odd number apart from those of the next one.
KERNEL selective_scan(float *y, i64 ys, const float *x, i64 xs, const float *b, i64 bs, const float *c, i64 cs, const float *dt, i64 dts,
                      const u8 *a_log, i64 a_log_format, const u8 *d, i64 d_format, float *memory, i64 stride, const Span *spans, i64 channels, i64 n, i64 rates, i64 columns) {
	const i64 first = BLOCK_X * columns, count = channels - first < columns ? channels - first : columns, own = first + THREAD, pitch = n | 1;
	const bool whole = THREAD < count;
	const Span s = spans[BLOCK_Y];
	float *slots = memory + first * n, *states = (float *)dynamic_shared, *all_rates = states + columns * pitch;
	for (i64 i = THREAD; i < count * n; i += THREADS) {
		const i64 at = i / n * pitch + i % n;
		states[at] = s.from < 0 ? 0 : slots[s.from * stride + i];
		all_rates[at] = (float)decay_rate(a_log, a_log_format, first * n + i, rates);
	}
	BARRIER();
	float *state = states + THREAD * pitch;
	const float *rate = all_rates + THREAD * pitch, share = whole ? load(d + own * size_of(d_format), d_format) : 0;
	for (i64 t = 0; t < s.rows; t++) {
		const i64 r = s.first + t;
		if (whole) {
			const float in = x[r * xs + own], *ins = b + r * bs, *outs = c + r * cs;
			const double step = softplus((double)dt[r * dts + own]);
			const float change = (float)step * in;
			float sum = 0;
#pragma unroll 4
			for (i64 i = 0; i < n; i++) {
				const float v = state[i] * (float)accurate_exponential(-(double)rate[i] * step) + change * ins[i];
				state[i] = v;
				sum = sum + v * outs[i];
			}
			y[r * ys + own] = sum + share * in;
		}
		if (t + 1 == s.save_after) scan_keep(slots + s.save * stride, states, count, n, pitch);
	}
	if (s.to >= 0) scan_keep(slots + s.to * stride, states, count, n, pitch);
}
EXPORT(selective_scan)
