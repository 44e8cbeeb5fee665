// Functions of one number, in the steps of the CPU's vector kernels.
#pragma once
#include "device.h"

// hyperbolic_tangent has the steps of tanh16.
DEVICE float hyperbolic_tangent(float x) {
	const float p[] = {21844.f / 6081075, -1382.f / 155925, 62.f / 2835, -17.f / 315, 2.f / 15, -1.f / 3};
	const float square = x * x;
	float q = p[0];
#pragma unroll
	for (int i = 1; i < 6; i++) q = FMA(q, square, p[i]);
	q = FMA(q * square, x, x);
	const float e = exponential(x + x);
	return __builtin_fabsf(x) < 0.4f ? q : FMA(-divide(1.f, e + 1.f), 2.f, 1.f);
}

// gelu has the steps of gelu16.
DEVICE float gelu(float g) {
	const float p[] = {-4.029927211e-02f, 1.861777591e-01f, -2.929523738e-01f, 1.356195952e-01f, -1.899741632e-02f, 1.190550422e-01f, 1.753575899e-01f, 2.282712382e-01f, 2.538825603e-01f, 2.538853257e-01f};
	const float size = __builtin_fabsf(g), a = size > 15 ? 15 : size, half = a * 0.5f; // a NaN stays
	const float t = divide(1.f, FMA(a, 0.45f * 0.707106781f, 1.f));
	float q = p[0];
#pragma unroll
	for (int i = 1; i < 10; i++) q = FMA(q, t, p[i]);
	const float high = a * half, low = FMA(a, half, -high);
	float e = exponential(0.f - high);
	e = FMA(-e, low, e);
	return (g < 0 ? 0 : g) - (half * e) * (q * t);
}

// gated is g·σ(g·(c1 + c3·g²)), as gate16.
DEVICE float gated(float g, float c1, float c3) {
	const float u = g * (c3 != 0 ? FMA(g * g, c3, c1) : c1);
	return divide(g, 1.f + exponential(0.f - u));
}

// accurate_exponential is exp in double precision within an ulp or two. It returns 0 if the result
// is subnormal. It has the steps of AccurateExp in package vector. It applies 2^n in two parts,
// because 2^n may be out of range even if the result is not.
DEVICE double accurate_exponential(double x) {
	if (x != x) return x;
	if (x > 709.7827) return (double)INFINITE;
	if (x < -708) return 0;
	const double scaled = x * 1.4426950408889634;
	const i64 n = (i64)(scaled + (scaled < 0 ? -0.5 : 0.5)), half = n / 2;
	const double r = FMA64(-(double)n, 1.9082149292705877e-10, FMA64(-(double)n, 0.6931471803691238, x)), z = r * r;
	double even = FMA64(z, 1.0 / 479001600, 1.0 / 3628800), odd = FMA64(z, 1.0 / 6227020800, 1.0 / 39916800);
	even = FMA64(even, z, 1.0 / 40320), odd = FMA64(odd, z, 1.0 / 362880);
	even = FMA64(even, z, 1.0 / 720), odd = FMA64(odd, z, 1.0 / 5040);
	even = FMA64(even, z, 1.0 / 24), odd = FMA64(odd, z, 1.0 / 120);
	even = FMA64(even, z, 1.0 / 2), odd = FMA64(odd, z, 1.0 / 6);
	even = FMA64(even, z, 1.0), odd = FMA64(odd, z, 1.0);
	return FMA64(odd, r, even) * __builtin_bit_cast(double, (u64)(half + 1023) << 52) * __builtin_bit_cast(double, (u64)(n - half + 1023) << 52);
}

// accurate_expm1 is exp(x) - 1 within an ulp or two, in the steps of AccurateExpm1 in package vector.
DEVICE double accurate_expm1(double x) {
	if (!(__builtin_fabs(x) < 0.35)) return accurate_exponential(x) - 1;
	const double z = x * x;
	double odd = FMA64(z, 1.0 / 6227020800, 1.0 / 39916800), even = FMA64(z, 1.0 / 479001600, 1.0 / 3628800);
	odd = FMA64(odd, z, 1.0 / 362880), even = FMA64(even, z, 1.0 / 40320);
	odd = FMA64(odd, z, 1.0 / 5040), even = FMA64(even, z, 1.0 / 720);
	odd = FMA64(odd, z, 1.0 / 120), even = FMA64(even, z, 1.0 / 24);
	odd = FMA64(odd, z, 1.0 / 6), even = FMA64(even, z, 1.0 / 2);
	return FMA64(FMA64(odd, z, 1.0), x, z * even);
}

// accurate_log1p is ln(1 + y) for y >= 0 within a few ulps, in the steps of AccurateLog1p in package vector.
DEVICE double accurate_log1p(double y) {
	const double u = 1 + y, rest = divide(y - (u - 1), u); // what u lacks
	const u64 bits = __builtin_bit_cast(u64, u);
	i64 n = (i64)(bits >> 52) - 1023;
	double m = __builtin_bit_cast(double, (bits & 0xfffffffffffff) | 0x3ff0000000000000);
	if (m > 1.4142135623730951) m = m * 0.5, n = n + 1;
	const double f = m - 1, s = divide(f, 2 + f), z = s * s, twice = s + s;
	double q = FMA64(z, 1.0 / 23, 1.0 / 21);
	q = FMA64(q, z, 1.0 / 19);
	q = FMA64(q, z, 1.0 / 17);
	q = FMA64(q, z, 1.0 / 15);
	q = FMA64(q, z, 1.0 / 13);
	q = FMA64(q, z, 1.0 / 11);
	q = FMA64(q, z, 1.0 / 9);
	q = FMA64(q, z, 1.0 / 7);
	q = FMA64(q, z, 1.0 / 5);
	q = FMA64(q, z, 1.0 / 3);
	const double log = FMA64(twice * z, q, twice);
	return FMA64((double)n, 0.6931471803691238, log + FMA64((double)n, 1.9082149292705877e-10, rest));
}

// The activations, with the numbers of package meta.
enum { NONE, SILU, GELU, GELU_TANH, RELU, TANH, SIGMOID, CLAMPED, RELU2, EXP_REST, CLAMP = 11, SOFTPLUS, EXP };

// softplus is ln(1 + exp(x)).
DEVICE double softplus(double x) { return x < 20 ? accurate_log1p(accurate_exponential(x)) : x; }

DEVICE float activate(float g, i64 act) {
	switch (act) {
	case SILU: return gated(g, 1, 0);
	case GELU: return gelu(g);
	case GELU_TANH: return gated(g, 1.5957691216057307117f, 1.5957691216057307117f * 0.044715f);
	case RELU: return g > 0 || g != g ? g : 0;
	case RELU2: return g > 0 || g != g ? g * g : 0;
	case SIGMOID: return (float)divide(1.0, 1.0 + accurate_exponential(-(double)g));
	case TANH: return hyperbolic_tangent(1.f * g) * 1.f;
	case SOFTPLUS: return (float)softplus((double)g);
	case EXP: return (float)accurate_exponential((double)g);
	}
	return g;
}

// exp_rest is exp(min(x, -limit)) - 1 - x for x up to 0.
DEVICE float exp_rest(float x, float limit) {
	if (x > 0) return 0;
	return (float)(accurate_expm1((double)(x > -limit ? -limit : x)) - (double)x);
}

DEVICE float clamped(float v, float limit) { return v < -limit ? -limit : v > limit ? limit : v; }

// gate_alone is the activation of a gate, limited where act says so, and gate_by the gate's times up.
DEVICE float gate_alone(float v, i64 act, float limit) {
	return act == CLAMPED ? gated(v > limit ? limit : v, 1.702f, 0) : activate(v, act);
}
DEVICE float gate_by(float v, float up, i64 act, float limit) {
	v = gate_alone(v, act, limit);
	return act == CLAMPED ? (clamped(up, limit) + 1) * v : v * up;
}
