// Operations that the threads of a warp execute together: products of tiles on the tensor cores,
// shuffles, and asynchronous copies to shared memory. The simulated driver implements them as loops
// over the fibers of a block, so all threads of a block must call them equally often. It adds in
// another order than a GPU, so results differ in the last bits.
#pragma once
#include "device.h"

struct alignas(16) Vector {
	u32 v[4];
};

// chosen returns one of three operands of a kernel. It uses values, so that the compiler cannot
// merge the loads into one from a computed address.
template <class T> DEVICE T chosen(int i, T a, T b, T c) {
#ifdef __CUDA__
	asm("" : "+l"(a));
	asm("" : "+l"(b));
	asm("" : "+l"(c));
#endif
	return i == 0 ? a : i == 1 ? b : c;
}

#ifdef __CUDA__
// pack rounds two numbers to bfloat16; lo is in the lower half.
DEVICE u32 pack(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
// multiply adds a [16 x 16] · b [16 x 8] to c, in the layout of mma.m16n8k16.
DEVICE void multiply(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// load_tiles reads four tiles of 8 x 8 numbers of 16 bits; lane i has the address of row i % 8 of tile i / 8.
DEVICE void load_tiles(u32 *r, const void *row) {
	const u32 at = (u32)(u64)(__attribute__((address_space(3))) const void *)row;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
// load_turned is like load_tiles, with each tile transposed.
DEVICE void load_turned(u32 *r, const void *row) {
	const u32 at = (u32)(u64)(__attribute__((address_space(3))) const void *)row;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
// copy_beside starts an asynchronous copy of 16 bytes to shared memory. copies_made ends a group of
// copies, and copies_wait waits until at most n groups are in flight.
DEVICE void copy_beside(void *to, const void *from) {
	const u32 at = (u32)(u64)(__attribute__((address_space(3))) void *)to;
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// copy_once is like copy_beside, for a weight that no other block reads. Its neighbours will be
// read soon.
DEVICE void copy_once(void *to, const void *from) {
	const u32 at = (u32)(u64)(__attribute__((address_space(3))) void *)to;
	asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
DEVICE void copies_made() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// load_once reads 16 bytes of a weight that no other block reads. Its neighbours will be read soon.
DEVICE Vector load_once(const void *p) {
	Vector r;
	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "l"(p));
	return r;
}
// copies_seen makes what this thread has copied or stored to shared memory visible to multiply_wide, after a barrier.
DEVICE void copies_seen() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE float exponential2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
#else
// Operands alternate between two buffers, so that one barrier suffices for each exchange.
static thread_local u32 sim_operands[2][6][1024];
static thread_local const u16 *sim_rows[2][1024];
static thread_local u8 sim_turns[1024];
DEVICE u32 pack(float lo, float hi) { return (u32)to_bfloat16(lo) | (u32)to_bfloat16(hi) << 16; }
DEVICE float half_of(u32 pair, int i) { return of_bits(i ? pair & 0xffff0000 : pair << 16); }
DEVICE void multiply(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
	const u32 mine[6] = {a0, a1, a2, a3, b0, b1};
	auto &all = sim_operands[sim_turns[sim_thread]++ & 1];
	for (int i = 0; i < 6; i++) all[i][sim_thread] = mine[i];
	sim_barrier();
	const int row = sim_thread & ~3, col = (sim_thread & ~31) + sim_thread % 4 * 8; // the threads that have them
	typedef float Four __attribute__((vector_size(16)));
	Four sum = {c[0], c[1], c[2], c[3]};
	for (int pair = 0; pair < 8; pair++) {
		const int high = pair / 4, from = pair % 4;
		const u32 upper = all[2 * high][row + from], lower = all[1 + 2 * high][row + from], left = all[4 + high][col + from], right = all[4 + high][col + 4 + from];
		for (int i = 0; i < 2; i++) {
			const float a = half_of(upper, i), b = half_of(lower, i), x = half_of(left, i), y = half_of(right, i);
			sum = __builtin_elementwise_fma(Four{a, a, b, b}, Four{x, y, x, y}, sum);
		}
	}
	for (int i = 0; i < 4; i++) c[i] = sum[i];
}
DEVICE void load_tiles(u32 *r, const void *row) {
	auto &rows = sim_rows[sim_turns[sim_thread]++ & 1];
	rows[sim_thread] = (const u16 *)row;
	sim_barrier();
	const int first = sim_thread & ~31, lane = sim_thread % 32;
	for (int i = 0; i < 4; i++) {
		const u16 *p = rows[first + 8 * i + lane / 4] + lane % 4 * 2;
		r[i] = (u32)p[0] | (u32)p[1] << 16;
	}
}
DEVICE void load_turned(u32 *r, const void *row) {
	auto &rows = sim_rows[sim_turns[sim_thread]++ & 1];
	rows[sim_thread] = (const u16 *)row;
	sim_barrier();
	const int first = sim_thread & ~31, lane = sim_thread % 32;
	for (int i = 0; i < 4; i++) {
		const u16 *const *p = rows + first + 8 * i + lane % 4 * 2;
		r[i] = (u32)p[0][lane / 4] | (u32)p[1][lane / 4] << 16;
	}
}
DEVICE void copy_beside(void *to, const void *from) { *(Vector *)to = *(const Vector *)from; }
DEVICE void copy_once(void *to, const void *from) { copy_beside(to, from); }
DEVICE void copies_made() {}
template <int N> DEVICE void copies_wait() {}
DEVICE void copies_seen() {}
DEVICE Vector load_once(const void *p) { return *(const Vector *)p; }
DEVICE float exponential2(float x) { return __builtin_exp2f(x); }
#endif

// A kernel with its operands in one struct of words.
#ifdef __CUDA__
#define EXPORT_STRUCT(kernel, Operands)
#else
#define EXPORT_STRUCT(kernel, Operands)                                     \
	extern "C" void kernel##__run(u64 *words) { kernel(*(Operands *)words); } \
	extern "C" const int kernel##__words = sizeof(Operands) / sizeof(u64);
#endif
