// Products of E4M3 and MXFP4 codes in the orders of summation of the CPU's kernels for them
// (package qgemm). Codes are multiplied without their scales. These are applied to the tokens
// before, or to the sums of blocks or rows afterwards. Each function is one lane of a row: it adds
// the columns of this lane to the sums of MANY tokens.
#pragma once
#include "weights.h"

enum { MANY = 8 };

// Tokens are up to MANY rows of activations, xs elements apart.
struct Tokens {
	const float *x;
	i64 xs;
	int n;
};

DEVICE void add_products(float *sum, float a, const Tokens &t, i64 col) {
#pragma unroll
	for (int i = 0; i < MANY; i++)
		if (i < t.n) sum[i] = FMA(a, t.x[i * t.xs + col], sum[i]);
}

// add_nothing adds the zeros at the end of a padded vector: it turns a sum of -0 into 0.
DEVICE void add_nothing(float *sum) {
#pragma unroll
	for (int i = 0; i < MANY; i++) sum[i] = FMA(0.f, 0.f, sum[i]);
}

DEVICE void add_scaled(float *sum, const float *part, float scale) {
#pragma unroll
	for (int i = 0; i < MANY; i++) sum[i] = FMA(part[i], scale, sum[i]);
}

// e4m3_lane16: 64 columns at a time, even columns of both halves first. Tokens are multiplied by
// the scales of blocks.
DEVICE void e4m3_lane16(float *sum, const Weight &w, i64 row, const Tokens &t, i64 cols, int lane) {
	const u8 *codes = w.data + row * w.stride;
	for (i64 k = 0; k < cols; k += 64)
		for (int i = 0; i < 4; i++) {
			const i64 c = k + i % 2 * 32 + 2 * lane + i / 2;
			if (c >= cols) {
				add_nothing(sum);
				continue;
			}
			const float a = small_e4m3(codes[c]);
			if (w.block_cols >= cols) {
				add_products(sum, a, t, c);
				continue;
			}
			const float by = scale_of(w, row, c);
#pragma unroll
			for (int j = 0; j < MANY; j++)
				if (j < t.n) sum[j] = FMA(a, t.x[j * t.xs + c] * by, sum[j]);
		}
}

// e4m3_lane8: chunks of columns with one scale, which multiplies their sums.
DEVICE void e4m3_lane8(float *sum, const Weight &w, i64 row, const Tokens &t, i64 cols, int lane) {
	const u8 *codes = w.data + row * w.stride;
	const i64 chunk = w.block_cols >= cols || w.block_cols % 128 == 0 ? 128 : w.block_cols % 64 == 0 ? 64 : 32;
	for (i64 k = 0; k < cols; k += chunk) {
		float part[MANY] = {};
		for (i64 b = k; b < k + chunk && b < cols; b += 32)
			for (int q = 0; q < 4; q++) {
				const i64 c = b + q % 2 * 16 + 2 * lane + q / 2;
				add_products(part, small_e4m3(codes[c]), t, c);
			}
		add_scaled(sum, part, scale_of(w, row, k));
	}
}

// mxfp4_lane16: 128 columns at a time. A lane has eight neighbouring ones.
DEVICE void mxfp4_lane16(float *sum, const Weight &w, i64 row, const Tokens &t, i64 cols, int lane) {
	const u8 *codes = w.data + row * w.stride;
	for (i64 k = 0; k < cols; k += 128) {
		const i64 c = k + 8 * lane;
		if (c >= cols) {
			add_nothing(sum);
			continue;
		}
		float part[MANY] = {};
		const float first = mxfp4(codes, c);
#pragma unroll
		for (int j = 0; j < MANY; j++)
			if (j < t.n) part[j] = first * t.x[j * t.xs + c];
		for (int i = 1; i < 8; i++) add_products(part, mxfp4(codes, c + i), t, c + i);
		add_scaled(sum, part, scale_of(w, row, c));
	}
}

// mxfp4_lane8: two blocks at a time, each in four lanes.
DEVICE void mxfp4_lane8(float *sum, const Weight &w, i64 row, const Tokens &t, i64 cols, int lane) {
	const u8 *codes = w.data + row * w.stride;
	for (i64 k = 0; k < cols; k += 64) {
		const i64 block = k + lane / 4 * 32;
		if (block >= cols) {
			add_nothing(sum);
			continue;
		}
		float part[MANY] = {};
		for (int i = 0; i < 8; i++) {
			const i64 c = block + i % 4 / 2 * 16 + lane % 4 * 4 + i % 2 * 2 + i / 4;
			add_products(part, mxfp4(codes, c), t, c);
		}
		add_scaled(sum, part, scale_of(w, row, block));
	}
}
