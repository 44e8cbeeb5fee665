// The kernels of `auto`, for tensor cores and memory bandwidth. The order of each element's sum
// depends only on shapes and, in attention, on positions.
#include "alone.h"
#include "attention.h"
#include "products.h"
#include "wide.h"

// Three blocks of few, or two of other kernels, run on a multiprocessor at a time.
#define PRODUCTS(name, blocks, body)                                             \
	KERNEL BOUNDS(32 * WARPS, blocks) name(const Products p) { body(p); } \
	EXPORT_STRUCT(name, Products)
#define COMMA ,

PRODUCTS(few_8, 3, few<1 COMMA 1 COMMA 4 COMMA false COMMA false>)
PRODUCTS(few_16, 2, few<1 COMMA 2 COMMA 4 COMMA false COMMA false>)
PRODUCTS(few_32, 2, few<1 COMMA 4 COMMA 2 COMMA false COMMA false>)
PRODUCTS(few_64, 1, few<2 COMMA 8 COMMA 1 COMMA false COMMA false>)
PRODUCTS(few_gated, 3, few<1 COMMA 1 COMMA 4 COMMA false COMMA true>)
PRODUCTS(few_codes_8, 3, few<1 COMMA 1 COMMA 1 COMMA true COMMA false>)
PRODUCTS(few_codes_64, 1, few<1 COMMA 8 COMMA 1 COMMA true COMMA false>)
PRODUCTS(few_codes_gated, 3, few<1 COMMA 1 COMMA 1 COMMA true COMMA true>)
PRODUCTS(many_128, 2, many<128 COMMA 128 COMMA false>)
PRODUCTS(many_64, 2, many<64 COMMA 64 COMMA false>)
PRODUCTS(many_codes_128, 1, many<128 COMMA 128 COMMA true>)
PRODUCTS(many_codes_64, 2, many<64 COMMA 64 COMMA true>)
#if !defined(__CUDA__) || __CUDA_ARCH__ >= 900
PRODUCTS(wide_256, 1, wide<128 COMMA 256>)
PRODUCTS(wide_128, 1, wide<128 COMMA 128>)
PRODUCTS(wide_64, 2, wide<64 COMMA 64>)
#endif

#define ALONE(name, gated)                                               \
	KERNEL BOUNDS(32 * WARPS, 2) name(const Alone p) { alone<gated>(p); } \
	EXPORT_STRUCT(name, Alone)
ALONE(alone_plain, false)
ALONE(alone_gated, true)

// round_rows makes the bfloat16 rows for many.
KERNEL round_rows(u16 *y, const float *x, i64 xs, i64 cols) {
	const i64 c = BLOCK_X * THREADS + THREAD, stride = (cols + 7) / 8 * 8;
	DEPEND();
	if (c < stride) y[BLOCK_Y * stride + c] = c < cols ? (u16)pack(x[BLOCK_Y * xs + c], 0) : 0;
}
EXPORT(round_rows)

#define ATTENTION(name, body)                    \
	KERNEL name(const Attention p) { body(p); } \
	EXPORT_STRUCT(name, Attention)

ATTENTION(attend_parts_128, attend_parts<128 COMMA 128 COMMA 4>)
ATTENTION(attend_parts_256, attend_parts<256 COMMA 256 COMMA 2>)
ATTENTION(attend_rows, attend_rows<128 COMMA 128 COMMA 2>)
ATTENTION(attend_sum, attend_add)

// sum_of_block adds one number of each thread. All threads get the sum. Warps are added in
// ascending order.
DEVICE float sum_of_block(float v) {
	SHARED float warps[32];
	for (int mask = 16; mask > 0; mask /= 2) v = v + exchanged(v, mask);
	if (THREAD % 32 == 0) warps[THREAD / 32] = v;
	BARRIER();
	float sum = 0;
	for (int i = 0; i < THREADS / 32; i++) sum = sum + warps[i];
	BARRIER();
	return sum;
}

// HELD is the number of values of a row that a thread of add_norm holds in registers.
enum { HELD = 8 };

// add_norm has a block for each group of a row of x. With `added`, x first becomes x + scale·added.
// A thread processes every THREADS-th number. It loads HELD of them before it uses the first one.
// Each pass reads longer groups again.
KERNEL BOUNDS(1024, 1) add_norm(float *y, i64 ys, float *x, i64 xs, const float *added, i64 added_stride, i64 scale, const u8 *weight, i64 weight_format, i64 weight_each, const u8 *bias, i64 bias_format, i64 bias_each, i64 dim, i64 layer, double eps, i64 offset) {
	const int group = (int)(BLOCK_Y * dim), n = (int)dim, turn = HELD * THREADS;
	float *in = x + BLOCK_X * xs + group, *out = y + BLOCK_X * ys + group;
	const float *more = added + BLOCK_X * added_stride + group;
	float sum = 0, mean = 0, v[HELD], w[HELD];
	const auto each = [&](int first, auto f) __attribute__((always_inline)) {
#pragma unroll
		for (int j = 0; j < HELD; j++)
			if (first + j * THREADS < n) f(j, first + j * THREADS);
	};
	const auto weigh = [&](int first) __attribute__((always_inline)) {
		if (weight) each(first, [&](int j, int i) __attribute__((always_inline)) { w[j] = load(weight + (weight_each ? group + i : i) * size_of(weight_format), weight_format); });
	};
	const auto reload = [&](int first) __attribute__((always_inline)) {
		if (n > turn) each(first, [&](int j, int i) __attribute__((always_inline)) { v[j] = in[i]; });
	};
	weigh(THREAD); // weights depend on no kernel
	DEPEND();
	for (int first = THREAD; first < n; first += turn) {
		each(first, [&](int j, int i) __attribute__((always_inline)) { v[j] = in[i]; });
		if (added) {
			float a[HELD];
			each(first, [&](int j, int i) __attribute__((always_inline)) { a[j] = more[i]; });
			each(first, [&](int j, int i) __attribute__((always_inline)) { in[i] = v[j] = v[j] + scalar(scale) * a[j]; });
		}
		each(first, [&](int j, int) __attribute__((always_inline)) { sum = layer ? sum + v[j] : FMA(v[j], v[j], sum); });
	}
	sum = sum_of_block(sum);
	if (layer) {
		mean = divide(sum, (float)dim);
		sum = 0;
		for (int first = THREAD; first < n; first += turn) {
			reload(first);
			each(first, [&](int j, int) __attribute__((always_inline)) { sum = FMA(v[j] - mean, v[j] - mean, sum); });
		}
		sum = sum_of_block(sum);
	}
	const float by = divide(1.f, root(divide(sum, (float)dim) + (float)eps));
	for (int first = THREAD; first < n; first += turn) {
		reload(first);
		if (n > turn) weigh(first);
		each(first, [&](int j, int i) __attribute__((always_inline)) {
			float r = (v[j] - mean) * by;
			if (weight) r = r * (scalar(offset) + w[j]);
			if (bias) r = r + load(bias + (bias_each ? group + i : i) * size_of(bias_format), bias_format);
			out[i] = r;
		});
	}
}
EXPORT(add_norm)

// RopeStore has the operands of rope_store: up to two matrices whose heads it rotates, and pages.
// It stores the second matrix as keys, and the values. A matrix without heads is absent, and
// without pages nothing is stored.
struct RopeStore {
	float *x[2];
	i64 stride[2], heads[2];
	const float *cosine;
	i64 cosine_stride;
	const float *sine;
	i64 sine_stride, dim, half, interleaved;
	u8 *k;
	i64 k_page, k_head, k_token;
	const float *values;
	i64 values_stride, value_heads, value_dim;
	u8 *v;
	i64 v_page, v_head, v_token;
	const int *slots;
	i64 page_tokens, format;
};

// rope_store has a row of blocks for each row, and a thread for each rotated pair, for each channel
// that is not rotated, and for each value. Its results have the bits of rope and store_kv.
KERNEL rope_store(const RopeStore p) {
	const int row = (int)BLOCK_Y, dim = (int)p.dim, half = (int)p.half, each = dim - half, n0 = (int)p.heads[0] * each, n1 = n0 + (int)p.heads[1] * each;
	int i = (int)BLOCK_X * THREADS + THREAD;
	const i64 token = p.slots ? p.slots[row] % p.page_tokens : 0, page = p.slots ? p.slots[row] / p.page_tokens : 0;
	DEPEND();
	if (i >= n1) {
		i -= n1;
		if (!p.v || i >= p.value_heads * p.value_dim) return;
		u8 *to = p.v + page * p.v_page + token * p.v_token + i / p.value_dim * p.v_head;
		store(to + i % p.value_dim * size_of(p.format), p.format, p.values[row * p.values_stride + i]);
		return;
	}
	const bool key = i >= n0;
	const int at = key ? i - n0 : i, head = at / each, c = at % each;
	float *x = chosen(key, p.x[0], p.x[1], p.x[1]) + row * chosen(key, p.stride[0], p.stride[1], p.stride[1]) + head * dim;
	u8 *to = key && p.k ? p.k + page * p.k_page + token * p.k_token + head * p.k_head : nullptr;
	if (c >= half) { // a channel that stays
		if (to) store(to + (half + c) * size_of(p.format), p.format, x[half + c]);
		return;
	}
	const int a = p.interleaved ? 2 * c : c, b = p.interleaved ? a + 1 : a + half;
	const float u = x[a], v = x[b], cosine = p.cosine[row * p.cosine_stride + c], sine = p.sine[row * p.sine_stride + c];
	const float first = u * cosine - v * sine, second = v * cosine + u * sine;
	x[a] = first, x[b] = second;
	if (to) store(to + a * size_of(p.format), p.format, first), store(to + b * size_of(p.format), p.format, second);
}
EXPORT_STRUCT(rope_store, RopeStore)
