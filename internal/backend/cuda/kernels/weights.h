// Elements of weights in all stored formats, widened exactly as the CPU's kernels widen them.
#pragma once
#include "device.h"

// The formats after those of device.h.
enum { Q8 = 3, Q4, Q4_K, Q6_K };

// A Weight is a view of a stored matrix: element (r, k) of the logical matrix is in stored row
// row + r·step and column col + k, or the other way round where transposed.
struct Weight {
	const u8 *data;
	i64 format, stride; // of a stored row in bytes
	i64 row, col, step, transposed;
};

DEVICE float q8(const u8 *block, int i) { return (float)(signed char)block[2 + i] * from_half(load16(block)); }
DEVICE float q4(const u8 *block, int i) { return (float)((block[2 + i % 16] >> i / 16 * 4 & 15) - 8) * from_half(load16(block)); }

DEVICE float q4_k(const u8 *block, int i) {
	const int group = i / 32;
	const u8 *p = block + 4;
	int scale, least;
	if (group < 4) scale = p[group] & 63, least = p[group + 4] & 63;
	else scale = (p[group + 4] & 15) | (p[group - 4] >> 6 << 4), least = (p[group + 4] >> 4) | (p[group] >> 6 << 4);
	const float by = from_half(load16(block)) * (float)scale, less = from_half(load16(block + 2)) * (float)least;
	const int code = block[16 + group / 2 * 32 + i % 32] >> group % 2 * 4 & 15;
	return by * (float)code - less;
}

DEVICE float q6_k(const u8 *block, int i) {
	const int part = i / 32;
	const float by = from_half(load16(block + 208)) * (float)(signed char)block[192 + i / 16];
	const int low = block[part / 4 * 64 + part % 2 * 32 + i % 32] >> part % 4 / 2 * 4 & 15;
	const int high = block[128 + part / 4 * 32 + i % 32] >> part % 4 * 2 & 3;
	return by * (float)((low | high << 4) - 32);
}

DEVICE float element(const Weight &w, i64 r, i64 k) {
	const i64 row = w.row + (w.transposed ? k : r * w.step), col = w.col + (w.transposed ? r * w.step : k);
	const u8 *p = w.data + row * w.stride;
	switch (w.format) {
	case Q8: return q8(p + col / 32 * 34, (int)(col % 32));
	case Q4: return q4(p + col / 32 * 18, (int)(col % 32));
	case Q4_K: return q4_k(p + col / 256 * 144, (int)(col % 256));
	case Q6_K: return q6_k(p + col / 256 * 210, (int)(col % 256));
	}
	return load(p + col * size_of(w.format), w.format);
}

// WEIGHT are the arguments of a kernel that make a Weight.
#define WEIGHT_ARGUMENTS const u8 *data, i64 format, i64 stride, i64 row, i64 col, i64 step, i64 transposed
#define WEIGHT {data, format, stride, row, col, step, transposed}
