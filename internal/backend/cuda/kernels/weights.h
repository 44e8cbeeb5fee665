// Elements of weights in all stored formats, widened exactly as the CPU's kernels widen them.
#pragma once
#include "device.h"

// The formats after those of device.h.
enum { Q8 = 3, Q4, Q4_K, Q6_K, E4M3, MXFP4 };

// A Weight is a view of a stored matrix. Element (r, k) of the logical matrix is in stored row row
// + r·step and column col + k, or the other way round if transposed.
struct Weight {
	const u8 *data;
	i64 format, stride; // of a stored row in bytes
	i64 row, col, step, transposed;
	// E4M3 and MXFP4 have a scale for each block of block_rows × block_cols. scale_stride is the
	// stride of a row of blocks.
	const u8 *scales;
	i64 scale_format, scale_stride, block_rows, block_cols;
};

DEVICE float q8(const u8 *block, int i) { return (float)(signed char)block[2 + i] * from_half(load16(block)); }
DEVICE float q4(const u8 *block, int i) { return (float)((block[2 + i % 16] >> i / 16 * 4 & 15) - 8) * from_half(load16(block)); }

// q4_k_scale sets the scale and the minimum of a group of 32 columns.
DEVICE void q4_k_scale(const u8 *block, int group, float *by, float *less) {
	const u8 *p = block + 4;
	int scale, least;
	if (group < 4) scale = p[group] & 63, least = p[group + 4] & 63;
	else scale = (p[group + 4] & 15) | (p[group - 4] >> 6 << 4), least = (p[group + 4] >> 4) | (p[group] >> 6 << 4);
	*by = from_half(load16(block)) * (float)scale, *less = from_half(load16(block + 2)) * (float)least;
}

DEVICE float q4_k(const u8 *block, int i) {
	const int group = i / 32;
	float by, less;
	q4_k_scale(block, group, &by, &less);
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

// small_e4m3 is the value of a code divided by 256: the bits of a float16.
DEVICE float small_e4m3(u8 code) {
	return (code & 127) == 127 ? of_bits(0x7fc00000) : from_half((u16)((code & 128) << 8 | (code & 127) << 7));
}

// e2m1 is the value of the low four bits.
DEVICE float e2m1(int code) {
	const int e = code >> 1 & 3, m = code & 1;
	return of_bits((u32)(code & 8) << 28 | (e > 0 ? (u32)(e + 126) << 23 | (u32)m << 22 : m ? 126u << 23 : 0));
}
DEVICE float mxfp4(const u8 *row, i64 col) { return e2m1(row[col / 2] >> col % 2 * 4); }

DEVICE float e8m0(u8 e) { return of_bits(e == 0 ? 0x400000 : e == 255 ? 0x7fc00000 : (u32)e << 23); }

// scale_of is the scale of the stored element (row, col).
DEVICE float scale_of(const Weight &w, i64 row, i64 col) {
	const i64 at = row / w.block_rows * w.scale_stride + col / w.block_cols;
	return w.format == MXFP4 ? e8m0(w.scales[at]) : load(w.scales + at * size_of(w.scale_format), w.scale_format);
}

DEVICE float stored_element(const Weight &w, i64 row, i64 col) {
	const u8 *p = w.data + row * w.stride;
	switch (w.format) {
	case Q8: return q8(p + col / 32 * 34, (int)(col % 32));
	case Q4: return q4(p + col / 32 * 18, (int)(col % 32));
	case Q4_K: return q4_k(p + col / 256 * 144, (int)(col % 256));
	case Q6_K: return q6_k(p + col / 256 * 210, (int)(col % 256));
	case E4M3: return small_e4m3(p[col]) * 256 * scale_of(w, row, col);
	case MXFP4: return mxfp4(p, col) * scale_of(w, row, col);
	}
	return load(p + col * size_of(w.format), w.format);
}

DEVICE float element(const Weight &w, i64 r, i64 k) {
	return stored_element(w, w.row + (w.transposed ? k : r * w.step), w.col + (w.transposed ? r * w.step : k));
}

// WEIGHT lists the arguments of a kernel that make a Weight.
#define WEIGHT_ARGUMENTS const u8 *data, i64 format, i64 stride, i64 row, i64 col, i64 step, i64 transposed, const u8 *scales, i64 scale_format, i64 scale_stride, i64 block_rows, i64 block_cols
#define WEIGHT {data, format, stride, row, col, step, transposed, scales, scale_format, scale_stride, block_rows, block_cols}
