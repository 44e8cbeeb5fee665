// Definitions for all kernels. One source has two targets: clang compiles it to PTX for a GPU, and
// to a library for the simulated driver, where a thread of a block is a fiber.
#pragma once
#pragma clang fp contract(off)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

#ifdef __CUDA__
#define DEVICE __attribute__((device, always_inline)) static inline
#define DEVICE_MEMBER __attribute__((device, always_inline)) inline
#define APART __attribute__((device, noinline)) static
#define KERNEL extern "C" __attribute__((global)) void
#define BOUNDS(threads, blocks) __attribute__((launch_bounds(threads, blocks)))
#define SHARED __attribute__((shared))
// dynamic_shared has the size given by the launch. It is not limited to the 48 KiB of SHARED
// arrays.
extern __attribute__((shared, aligned(1024))) u8 dynamic_shared[];
#define THREAD (int)__nvvm_read_ptx_sreg_tid_x()
#define THREADS (int)__nvvm_read_ptx_sreg_ntid_x()
#define BLOCK_X (i64)__nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y (i64)__nvvm_read_ptx_sreg_ctaid_y()
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __nvvm_bar_warp_sync(0xffffffff)
#define EXPORT(kernel)
// A kernel of fast.cu may start when all blocks of the previous one have called TRIGGER. It must
// call AWAIT before it accesses memory that another kernel writes. Other kernels start when the
// previous ones have ended.
#if __CUDA_ARCH__ >= 900
#define TRIGGER() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define AWAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define TRIGGER() (void)0
#define AWAIT() (void)0
#endif
DEVICE float exchange(float v, int mask) { return __nvvm_shfl_sync_bfly_f32(0xffffffff, v, mask, 31); }
DEVICE float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEVICE u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
DEVICE float nearest(float f) { float r; asm("cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(f)); return r; }
DEVICE float divide(float a, float b) { float r; asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEVICE double divide(double a, double b) { double r; asm("div.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b)); return r; }
DEVICE float root(float a) { float r; asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
DEVICE double root(double a) { double r; asm("sqrt.rn.f64 %0, %1;" : "=d"(r) : "d"(a)); return r; }
#else
#include <cstddef>
#include <utility>
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define APART static
#define BOUNDS(threads, blocks)
#define KERNEL extern "C" void
#define SHARED static thread_local
#define dynamic_shared sim_shared
extern "C" {
extern thread_local int sim_thread, sim_threads;
extern thread_local i64 sim_block_x, sim_block_y;
extern thread_local float sim_lane[2][8][1024];
extern thread_local u8 *sim_shared;
void sim_barrier(void);
}
#define THREAD sim_thread
#define THREADS sim_threads
#define BLOCK_X sim_block_x
#define BLOCK_Y sim_block_y
#define BARRIER() sim_barrier()
#define WARP_BARRIER() sim_barrier()
#define TRIGGER() (void)0
#define AWAIT() (void)0
DEVICE float from_half(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
DEVICE u16 to_half(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
DEVICE float nearest(float f) { return __builtin_rintf(f); }
DEVICE float divide(float a, float b) { return a / b; }
DEVICE double divide(double a, double b) { return a / b; }
DEVICE float root(float a) { return __builtin_sqrtf(a); }
DEVICE double root(double a) { return __builtin_sqrt(a); }
// A kernel's arguments are words. EXPORT converts them to their types.
template <class... A, size_t... I> static void call_with(void (*f)(A...), u64 *words, std::index_sequence<I...>) { f(*(A *)(words + I)...); }
template <class... A> static void call_with(void (*f)(A...), u64 *words) { call_with(f, words, std::index_sequence_for<A...>{}); }
template <class... A> static constexpr int arguments_of(void (*)(A...)) { return sizeof...(A); }
#define EXPORT(kernel)                                                     \
	extern "C" void kernel##__run(u64 *words) { call_with(kernel, words); } \
	extern "C" const int kernel##__arguments = arguments_of(kernel);
#endif

#define DEPEND()  \
	do {            \
		TRIGGER(); \
		AWAIT();   \
	} while (0)

#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define FMA64(a, b, c) __builtin_fma(a, b, c)
#define INFINITE __builtin_inff()

DEVICE float of_bits(u32 u) { return __builtin_bit_cast(float, u); }
DEVICE u32 bits_of(float f) { return __builtin_bit_cast(u32, f); }
DEVICE float scalar(i64 word) { return of_bits((u32)word); }

// The formats of dense values, with the numbers of package cuda.
enum { BF16, F16, F32 };

DEVICE i64 size_of(i64 format) { return format == F32 ? 4 : 2; }

// Numbers at any alignment.
DEVICE u16 load16(const u8 *p) { return ((u64)p & 1) ? (u16)(p[0] | p[1] << 8) : *(const u16 *)p; }
DEVICE float load32(const u8 *p) {
	if (((u64)p & 3) == 0) return *(const float *)p;
	return of_bits((u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24);
}
DEVICE float load(const u8 *p, i64 format) {
	if (format == F32) return load32(p);
	return format == BF16 ? of_bits((u32)load16(p) << 16) : from_half(load16(p));
}

// to_bfloat16 rounds to nearest, ties to even. A NaN stays a NaN.
DEVICE u16 to_bfloat16(float f) {
	const u32 u = bits_of(f);
	return (u16)(f != f ? u >> 16 | 64 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}
DEVICE float rounded16(float f) { return of_bits((u32)to_bfloat16(f) << 16); }
DEVICE void store(u8 *p, i64 format, float f) {
	if (format == F32) *(float *)p = f;
	else *(u16 *)p = format == BF16 ? to_bfloat16(f) : to_half(f);
}

// exponential has the steps of exp16 in the CPU's vector kernels. It scales by 2^n in two exact
// steps. A subnormal result is rounded once, as by scalef.
DEVICE float exponential(float x) {
	if (x != x) return x;
	x = x < -105.f ? -105.f : x > 89.f ? 89.f : x;
	const float n = nearest(x * 1.44269504088896340736f);
	float r = FMA(-n, 0.693359375f, x);
	r = FMA(-n, -2.12194440054690582767e-4f, r);
	float q = FMA(r, 1.f / 5040, 1.f / 720);
	q = FMA(q, r, 1.f / 120);
	q = FMA(q, r, 1.f / 24);
	q = FMA(q, r, 1.f / 6);
	q = FMA(q, r, 0.5f);
	q = FMA(q, r, 1.f);
	q = FMA(q, r, 1.f);
	const int e = (int)n, half = e >> 1;
	return q * of_bits((u32)(half + 127) << 23) * of_bits((u32)(e - half + 127) << 23);
}

// fold adds the partial sums of `lanes` neighbouring threads in halves, for eight sums at once. All
// threads of the block must call it.
DEVICE void fold8(float *v, int lanes) {
#ifdef __CUDA__
	for (int half = lanes / 2; half > 0; half /= 2)
#pragma unroll
		for (int i = 0; i < 8; i++) v[i] += exchange(v[i], half);
#else
	int turn = 0;
	for (int half = lanes / 2; half > 0; half /= 2, turn ^= 1) {
		for (int i = 0; i < 8; i++) sim_lane[turn][i][sim_thread] = v[i];
		sim_barrier();
		for (int i = 0; i < 8; i++) v[i] += sim_lane[turn][i][sim_thread ^ half];
	}
	sim_barrier();
#endif
}
DEVICE float fold(float v, int lanes) {
	float all[8] = {v};
	fold8(all, lanes);
	return all[0];
}
