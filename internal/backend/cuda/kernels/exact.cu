// The exact kernels: every sum has the order of the CPU's kernels with the same number of lanes, so
// a result has the CPU's bits. They are simple and not tuned.
#include "math.h"
#include "codes.h"
#include "recurrent.h"

KERNEL zero(u8 *p, i64 n) {
	const i64 i = BLOCK_X * THREADS + THREAD;
	if (i < n) p[i] = 0;
}
EXPORT(zero)

// 16-bit floats, by format.
struct Brain {
	u16 bits;
};
struct Half {
	u16 bits;
};
DEVICE float widen(float v) { return v; }
DEVICE float widen(Brain v) { return of_bits((u32)v.bits << 16); }
DEVICE float widen(Half v) { return from_half(v.bits); }

// dense_sums adds products of columns lane, lane + lanes, … of a row to the sums of up to T tokens.
// It loads AHEAD columns before it uses them.
template <int T, int AHEAD, class Number> DEVICE void dense_sums(float *sum, const Number *row, const float *x, i64 xs, int tokens, int cols, int lane, int lanes) {
	const auto widened = [&](int k) __attribute__((always_inline)) { return widen(row[k]); };
	int k = lane;
	for (; k + (AHEAD - 1) * lanes < cols; k += AHEAD * lanes) {
		float a[AHEAD], b[T][AHEAD] = {};
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			a[j] = widened(k + j * lanes);
#pragma unroll
			for (int i = 0; i < T; i++)
				if (i < tokens) b[i][j] = x[i * xs + k + j * lanes];
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++)
#pragma unroll
			for (int i = 0; i < T; i++) sum[i] = FMA(a[j], b[i][j], sum[i]);
	}
	for (; k < cols; k += lanes)
#pragma unroll
		for (int i = 0; i < T; i++)
			if (i < tokens) sum[i] = FMA(widened(k), x[i * xs + k], sum[i]);
}

// sums_of_row is like dense_sums, for up to MANY tokens.
template <class Number> DEVICE void sums_of_row(float *sum, const u8 *row, const float *x, i64 xs, int tokens, i64 cols, int lane, i64 lanes) {
	if (tokens == 1) dense_sums<1, 16>(sum, (const Number *)row, x, xs, tokens, (int)cols, lane, (int)lanes);
	else dense_sums<MANY, 4>(sum, (const Number *)row, x, xs, tokens, (int)cols, lane, (int)lanes);
}

// linear: y[t][r] = sum over k of w[r][k]·x[t][k], plus bias[r]. `lanes` threads compute a row, for
// eight tokens at a time. Lane i sums columns i, i + lanes, …
KERNEL BOUNDS(128, 4) linear(float *y, i64 ys, WEIGHT_ARGUMENTS, const float *x, i64 xs, const u8 *bias, i64 bias_step, i64 bias_format, i64 rows, i64 tokens, i64 cols, i64 lanes) {
	const Weight w = WEIGHT;
	const int lane = THREAD % (int)lanes;
	const i64 r = BLOCK_X * (THREADS / lanes) + THREAD / lanes, first = BLOCK_Y * MANY;
	float sum[MANY] = {};
	const u8 *row_at = w.data + (w.row + r * w.step) * w.stride + w.col * size_of(w.format);
	const bool dense = r < rows && !w.transposed && w.format <= F32 && (u64)row_at % size_of(w.format) == 0;
	const int left = (int)(tokens - first < MANY ? tokens - first : MANY);
	const float *in = x + first * xs;
	if (dense && w.format == F32) sums_of_row<float>(sum, row_at, in, xs, left, cols, lane, lanes);
	else if (dense && w.format == BF16) sums_of_row<Brain>(sum, row_at, in, xs, left, cols, lane, lanes);
	else if (dense) sums_of_row<Half>(sum, row_at, in, xs, left, cols, lane, lanes);
	else if (r < rows)
		for (i64 k = lane; k < cols; k += lanes) {
			const float a = element(w, r, k);
#pragma unroll
			for (int i = 0; i < MANY; i++)
				if (first + i < tokens) sum[i] = FMA(a, x[(first + i) * xs + k], sum[i]);
		}
	fold8(sum, (int)lanes);
	if (lane != 0 || r >= rows) return;
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (first + i < tokens) y[(first + i) * ys + r] = bias ? sum[i] + load(bias + r * bias_step, bias_format) : sum[i];
}
EXPORT(linear)

// linear_codes is linear for E4M3 and MXFP4 views that start at the first column and consist of
// whole blocks of 32 columns. lanes is 8 or 16.
KERNEL linear_codes(float *y, i64 ys, WEIGHT_ARGUMENTS, const float *x, i64 xs, const u8 *bias, i64 bias_step, i64 bias_format, i64 rows, i64 tokens, i64 cols, i64 lanes) {
	const Weight w = WEIGHT;
	const int lane = THREAD % (int)lanes;
	const i64 r = BLOCK_X * (THREADS / lanes) + THREAD / lanes, first = BLOCK_Y * MANY, stored = w.row + r * w.step;
	const Tokens t = {x + first * xs, xs, (int)(tokens - first < MANY ? tokens - first : MANY)};
	float sum[MANY] = {};
	if (r < rows) {
		if (w.format == E4M3 && lanes == 16) e4m3_lane16(sum, w, stored, t, cols, lane);
		else if (w.format == E4M3) e4m3_lane8(sum, w, stored, t, cols, lane);
		else if (lanes == 16) mxfp4_lane16(sum, w, stored, t, cols, lane);
		else mxfp4_lane8(sum, w, stored, t, cols, lane);
	}
	fold8(sum, (int)lanes);
	if (lane != 0 || r >= rows) return;
#pragma unroll
	for (int i = 0; i < MANY; i++) {
		if (i >= t.n) break;
		float v = w.format == E4M3 ? sum[i] * 256 : sum[i];
		if (w.format == E4M3 && lanes == 16 && w.block_cols >= cols) v *= scale_of(w, stored, 0);
		y[(first + i) * ys + r] = bias ? v + load(bias + r * bias_step, bias_format) : v;
	}
}
EXPORT(linear_codes)

KERNEL embed(float *y, i64 ys, WEIGHT_ARGUMENTS, const int *ids, i64 scale, i64 cols) {
	const Weight w = WEIGHT;
	const i64 c = BLOCK_X * THREADS + THREAD, r = BLOCK_Y;
	if (c >= cols) return;
	const float v = element(w, ids[r], c);
	y[r * ys + c] = scalar(scale) == 1 ? v : v * scalar(scale);
}
EXPORT(embed)

// norm has a block for each group of a row. `lanes` threads of it sum.
KERNEL norm(float *y, i64 ys, const float *x, i64 xs, const u8 *weight, i64 weight_format, i64 weight_each, const u8 *bias, i64 bias_format, i64 bias_each, i64 dim, i64 layer, double eps, i64 offset, i64 lanes) {
	const i64 group = BLOCK_Y * dim;
	const float *in = x + BLOCK_X * xs + group;
	float *out = y + BLOCK_X * ys + group;
	SHARED float shared_mean, shared_by;
	float mean = 0;
	if (layer) {
		if (THREAD == 0) {
			double s[4] = {};
			for (i64 i = 0; i < dim; i++) s[i % 4] += in[i];
			shared_mean = (float)divide((s[0] + s[2]) + (s[1] + s[3]), (double)dim);
		}
		BARRIER();
		mean = shared_mean;
	}
	float sum = 0;
	for (i64 i = THREAD; i < dim && THREAD < lanes; i += lanes) {
		const float d = in[i] - mean;
		sum = FMA(d, d, sum);
	}
	sum = fold(sum, (int)lanes);
	if (THREAD == 0) shared_by = (float)divide(1.0, root(divide((double)sum, (double)dim) + eps));
	BARRIER();
	const float by = shared_by;
	for (i64 i = THREAD; i < dim; i += THREADS) {
		float v = (in[i] - mean) * by;
		if (weight) v = v * (scalar(offset) + load(weight + (weight_each ? group + i : i) * size_of(weight_format), weight_format));
		if (bias) v = v + load(bias + (bias_each ? group + i : i) * size_of(bias_format), bias_format);
		out[i] = v;
	}
}
EXPORT(norm)

KERNEL rope(float *x, i64 xs, const float *cosine, i64 cs, const float *sine, i64 ss, i64 heads, i64 dim, i64 half, i64 interleaved, i64 n) {
	const i64 i = BLOCK_X * THREADS + THREAD;
	if (i >= n) return;
	const i64 pair = i % half, head = i / half % heads, row = i / half / heads;
	float *a = x + row * xs + head * dim + (interleaved ? 2 * pair : pair), *b = interleaved ? a + 1 : a + half;
	const float u = *a, v = *b, c = cosine[row * cs + pair], s = sine[row * ss + pair];
	*a = u * c - v * s;
	*b = v * c + u * s;
}
EXPORT(rope)

KERNEL gather(float *y, i64 ys, const float *x, i64 xs, const int *rows, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD, r = BLOCK_Y;
	if (c < cols) y[r * ys + c] = x[rows[r] * xs + c];
}
EXPORT(gather)

// scatter has a thread for each column, which adds the rows in order.
KERNEL scatter(float *y, i64 ys, const float *x, i64 xs, const int *rows, const float *weights, i64 n, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD;
	if (c >= cols) return;
	for (i64 i = 0; i < n; i++) {
		float *to = y + rows[i] * ys + c;
		*to = *to + weights[i] * x[i * xs + c];
	}
}
EXPORT(scatter)

KERNEL add(float *y, i64 ys, const float *x, i64 xs, i64 scale, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD, r = BLOCK_Y;
	if (c < cols) y[r * ys + c] = y[r * ys + c] + scalar(scale) * x[r * xs + c];
}
EXPORT(add)

// gate has a thread for each number. A number of g applies to `each` columns.
KERNEL gate(float *y, i64 ys, const float *g, i64 gs, const float *up, i64 us, i64 act, i64 limit, i64 each, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD, r = BLOCK_Y;
	if (c >= cols) return;
	const float in = g[r * gs + (each == 1 ? c : c / each)];
	if (act == EXP_REST || act == CLAMP) {
		const float v = act == CLAMP ? clamped(in, scalar(limit)) : exp_rest(in, scalar(limit));
		y[r * ys + c] = up ? v * up[r * us + c] : v;
		return;
	}
	y[r * ys + c] = up ? gate_by(in, up[r * us + c], act, scalar(limit)) : gate_alone(in, act, scalar(limit));
}
EXPORT(gate)

KERNEL scale(float *x, i64 xs, i64 by, i64 cap, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD;
	if (c >= cols) return;
	float *p = x + BLOCK_Y * xs + c;
	const float most = scalar(cap), v = *p * scalar(by);
	*p = most > 0 ? most * hyperbolic_tangent(divide(1.f, most) * v) : v;
}
EXPORT(scale)

// The formats of pages: dense values, and blocks of Q8.
DEVICE float page_element(const u8 *row, i64 format, i64 c) {
	return format == Q8 ? q8(row + c / 32 * 34, (int)(c % 32)) : load(row + c * size_of(format), format);
}

// store_kv has a thread for each number. Strides are in bytes.
KERNEL store_kv(u8 *pages, i64 format, i64 page_stride, i64 head_stride, i64 token_stride, const float *x, i64 xs, const int *slots, i64 page_tokens, i64 dim, i64 width) {
	const i64 c = BLOCK_X * THREADS + THREAD, r = BLOCK_Y;
	if (c >= width) return;
	const i64 slot = slots[r];
	u8 *head = pages + slot / page_tokens * page_stride + slot % page_tokens * token_stride + c / dim * head_stride;
	store(head + c % dim * size_of(format), format, x[r * xs + c]);
}
EXPORT(store_kv)

// store_blocks has a thread for each block of 32 numbers of a head. The last block is padded with
// zeros. A block with a number that is not finite becomes NaN.
KERNEL store_blocks(u8 *pages, i64 page_stride, i64 head_stride, i64 token_stride, const float *x, i64 xs, const int *slots, i64 page_tokens, i64 dim, i64 blocks) {
	const i64 i = BLOCK_X * THREADS + THREAD, each = (dim + 31) / 32, r = BLOCK_Y;
	if (i >= blocks) return;
	const i64 slot = slots[r], head = i / each, first = i % each * 32;
	u8 *to = pages + slot / page_tokens * page_stride + slot % page_tokens * token_stride + head * head_stride + i % each * 34;
	const float *in = x + r * xs + head * dim + first;
	const int n = (int)(dim - first < 32 ? dim - first : 32);
	u32 top = 0;
	for (int k = 0; k < n; k++) {
		const u32 size = bits_of(in[k]) & 0x7fffffff;
		top = size > top ? size : top;
	}
	const u16 half = top < 0x7f800000 ? to_half(divide(of_bits(top), 127.f)) : 0x7e00;
	const float d = from_half(half), by = d != 0 && (half & 0x7c00) != 0x7c00 ? divide(1.f, d) : 0;
	to[0] = (u8)half, to[1] = (u8)(half >> 8);
	for (int k = 0; k < 32; k++) {
		const float code = k < n && top < 0x7f800000 ? nearest(in[k] * by) : 0;
		to[2 + k] = (u8)(signed char)(code > 127 ? 127 : code < -127 ? -127 : code);
	}
}
EXPORT(store_blocks)

// attend has a block for each query head of a row: all scores, their weights, then the values, each sum in
// ascending order of channels or positions. rows says of each row its first visible position, the end, and
// where its pages begin in `tables`. softcap is 0 or the cap; scale then is that of its operand. slopes are
// absent or those of biases by distance; if rounded is not 0, by position, with each step rounded to bfloat16 before the
// scale that rounded is.
KERNEL attend(float *y, i64 ys, const float *q, i64 qs, const u8 *k, i64 k_format, i64 k_page, i64 k_head, i64 k_token, const u8 *v, i64 v_format, i64 v_page, i64 v_head, i64 v_token,
              const int *rows, const int *tables, i64 page_tokens, i64 group, i64 dim, i64 value_dim, i64 scale, i64 softcap, const u8 *sinks, i64 sink_format, float *scratch, i64 pitch, i64 heads, i64 lanes, const float *slopes, i64 rounded) {
	const i64 row = BLOCK_X, head = BLOCK_Y, kv_head = head / group;
	const int lo = rows[3 * row], n = rows[3 * row + 1] - lo;
	const int *table = tables + rows[3 * row + 2];
	float *e = scratch + (row * heads + head) * pitch;
	const float *in = q + row * qs + head * dim;
	SHARED float shared_top, shared_by;
	for (int j = THREAD; j < n; j += THREADS) {
		const i64 at = lo + j;
		const u8 *key = k + table[at / page_tokens] * k_page + kv_head * k_head + at % page_tokens * k_token;
		float s = 0;
		for (i64 c = 0; c < dim; c++) s = FMA(page_element(key, k_format, c), in[c], s);
		s = s * scalar(scale);
		s = softcap ? scalar(softcap) * hyperbolic_tangent(s) : s;
		if (slopes) s = s + (rounded ? scalar(rounded) * rounded16(rounded16(slopes[head]) * rounded16((float)j)) : slopes[head] * (float)(j - n + 1));
		e[j] = s;
	}
	BARRIER();
	const float sink = sinks ? load(sinks + head * size_of(sink_format), sink_format) : 0;
	if (THREAD == 0) {
		float top = -INFINITE;
		for (int j = 0; j < n; j++)
			if (e[j] > top) top = e[j];
		if (sinks && (sink > top || sink != sink)) top = sink;
		shared_top = top;
	}
	BARRIER();
	const float top = shared_top;
	for (int j = THREAD; j < n; j += THREADS) e[j] = exponential(e[j] - top);
	BARRIER();
	float sum = 0;
	if (THREAD < lanes)
		for (int j = THREAD; j < n; j += lanes) sum = sum + e[j];
	sum = fold(sum, (int)lanes);
	if (THREAD == 0) shared_by = divide(1.f, sum + (sinks ? (float)accurate_exponential((double)(sink - top)) : 0.f));
	BARRIER();
	const float by = shared_by;
	for (i64 c = THREAD; c < value_dim; c += THREADS) {
		float s = 0;
		for (int j = 0; j < n; j++) {
			const i64 at = lo + j;
			s = FMA(page_element(v + table[at / page_tokens] * v_page + kv_head * v_head + at % page_tokens * v_token, v_format, c), e[j], s);
		}
		y[row * ys + head * value_dim + c] = s * by;
	}
}
EXPORT(attend)
