// Layers with a state for each sequence, in the order of sums of the CPU's kernels. A thread goes through the tokens
// of a sequence for one channel, or one column of a head's state, which no other thread touches.
#pragma once
#include "math.h"

// A Span is the rows of one sequence: `rows` from `first` on. from and to are slots of states, or -1; after `save_after`
// rows, if not 0, the state is copied to slot `save` too.
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

// conv_input sets *v to token t of a span, which may be in the state before its first; false for a zero.
DEVICE bool conv_input(const Conv &o, const Span &s, i64 t, float *v) {
	if (t >= 0) *v = o.x[(s.first + t) * o.xs];
	else if (s.from >= 0) *v = o.memory[s.from * o.stride + (o.kernel - 1 + t) * o.channels];
	return t >= 0 || s.from >= 0;
}

// conv_keep writes the last inputs of n tokens to a slot, which may be the one that is read.
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

// A Column is one of a head's state of some rows.
struct Column {
	float *at;
	i64 step, rows;
};

// column_begin sets a column to what it is before the first token of a span, in the slot that is written or in spare.
// memory is the column of the first slot.
DEVICE Column column_begin(float *memory, i64 stride, float *spare, const Span &s, i64 step, i64 rows) {
	const Column c = {s.to < 0 ? spare : memory + s.to * stride, step, rows};
	const float *from = memory + s.from * stride;
	if (s.from != s.to || s.from < 0)
		for (i64 i = 0; i < rows; i++) c.at[i * step] = s.from < 0 ? 0 : from[i * step];
	return c;
}

// column_step adds k times change to a column, which decays, and returns its sum with q. Both are multiplied first.
DEVICE float column_step(const Column &c, const float *k, float by_k, const float *q, float by_q, float change, float decay) {
	float sum = 0;
	for (i64 i = 0; i < c.rows; i++) {
		const float v = c.at[i * c.step] * decay + k[i] * by_k * change;
		c.at[i * c.step] = v;
		sum = sum + q[i] * by_q * v;
	}
	return sum;
}

// column_save copies a column to a slot.
DEVICE void column_save(const Column &c, float *memory, i64 stride, const Span &s) {
	float *to = memory + s.save * stride;
	for (i64 i = 0; i < c.rows; i++) to[i * c.step] = c.at[i * c.step];
}

DEVICE double softplus(double x) { return x < 20 ? accurate_log1p(accurate_exponential(x)) : x; }

// decay_rate is exp(a_log), which a_log may be the negative of.
DEVICE double decay_rate(const u8 *a_log, i64 format, i64 head, i64 rates) {
	const double a = load(a_log + head * size_of(format), format);
	return rates ? -a : accurate_exponential(a);
}

// shorten sets by to what a key and a query are multiplied by: their lengths become 1 and scale. The whole block calls
// it. Each `lanes` threads have all sums.
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

// delta_rule has blocks of a warp for the columns of a head, `parts` of them. key_step is the distance of the key heads
// of value heads that follow one another where tiled, else the number of value heads that share one.
KERNEL delta_rule(float *y, i64 ys, const float *q, i64 qs, const float *k, i64 ks, const float *v, i64 vs, const float *a, i64 as, const float *b, i64 bs,
                  const u8 *a_log, i64 a_log_format, const u8 *dt_bias, i64 dt_format, float *memory, i64 stride, float *spare, const Span *spans,
                  i64 key_heads, i64 value_heads, i64 key_dim, i64 value_dim, i64 rates, i64 tiled, i64 parts, i64 lanes) {
	const i64 head = BLOCK_X / parts, j = BLOCK_X % parts * THREADS + THREAD, size = key_dim * value_dim;
	const i64 key = (tiled ? head % key_heads : head / (value_heads / key_heads)) * key_dim;
	const bool whole = j < value_dim;
	const Span s = spans[BLOCK_Y];
	float *slots = memory + head * size + j;
	Column c = {};
	if (whole) c = column_begin(slots, stride, spare + (BLOCK_Y * value_heads + head) * size + j, s, value_dim, key_dim);
	const double scale = divide(1.0, root((double)key_dim)), rate = decay_rate(a_log, a_log_format, head, rates);
	const double bias = load(dt_bias + head * size_of(dt_format), dt_format);
	for (i64 t = 0; t < s.rows; t++) {
		const i64 r = s.first + t;
		const float *kt = k + r * ks + key, *qt = q + r * qs + key;
		float by[2];
		shorten(by, kt, qt, key_dim, scale, (int)lanes);
		if (!whole) continue;
		const float decay = (float)accurate_exponential(-rate * softplus((double)a[r * as + head] + bias));
		const float strength = activate(b[r * bs + head], SIGMOID);
		float seen = 0;
		for (i64 i = 0; i < key_dim; i++) seen = seen + kt[i] * by[0] * c.at[i * c.step];
		const float change = strength * (v[r * vs + head * value_dim + j] - decay * seen);
		y[r * ys + head * value_dim + j] = column_step(c, kt, by[0], qt, by[1], change, decay);
		if (t + 1 == s.save_after) column_save(c, slots, stride, s);
	}
}
EXPORT(delta_rule)

// state_space has blocks for the columns of a head, `parts` of them.
KERNEL state_space(float *y, i64 ys, const float *x, i64 xs, const float *b, i64 bs, const float *c, i64 cs, const float *dt, i64 dts,
                   const u8 *a_log, i64 a_log_format, const u8 *dt_bias, i64 dt_format, const u8 *d, i64 d_format, float *memory, i64 stride, float *spare, const Span *spans,
                   i64 heads, i64 groups, i64 head_dim, i64 state_dim, i64 step_min, i64 step_max, i64 rates, i64 parts) {
	const i64 head = BLOCK_X / parts, j = BLOCK_X % parts * THREADS + THREAD, size = head_dim * state_dim, group = head / (heads / groups) * state_dim;
	if (j >= head_dim) return;
	const Span s = spans[BLOCK_Y];
	float *slots = memory + head * size + j;
	const Column state = column_begin(slots, stride, spare + (BLOCK_Y * heads + head) * size + j, s, head_dim, state_dim);
	const double rate = decay_rate(a_log, a_log_format, head, rates), least = scalar(step_min), most = scalar(step_max);
	const double bias = load(dt_bias + head * size_of(dt_format), dt_format);
	const float share = load(d + head * size_of(d_format), d_format);
	for (i64 t = 0; t < s.rows; t++) {
		const i64 r = s.first + t;
		double step = softplus((double)dt[r * dts + head] + bias);
		step = step < least ? least : step;
		step = step > most ? most : step;
		const float in = x[r * xs + head * head_dim + j];
		const float sum = column_step(state, b + r * bs + group, 1, c + r * cs + group, 1, (float)step * in, (float)accurate_exponential(-rate * step));
		y[r * ys + head * head_dim + j] = sum + share * in;
		if (t + 1 == s.save_after) column_save(state, slots, stride, s);
	}
}
EXPORT(state_space)
