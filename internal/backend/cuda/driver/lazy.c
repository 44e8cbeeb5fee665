//go:build cuda

// Binds the CUDA driver when the program starts, so that one binary runs with and without it. Each
// function of the driver jumps through a pointer, which points to no_driver until load finds the
// real function.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { NO_DEVICE = 100 }; // CUDA_ERROR_NO_DEVICE

static int no_driver(void) { return NO_DEVICE; }

#define SYMBOL(name)                                                                            \
	void *heft_at_##name = (void *)no_driver;                                                    \
	__asm__(".pushsection .text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n\t"     \
	        "movq heft_at_" #name "(%rip), %r11\n\tjmp *%r11\n.popsection\n");
#include "symbols.h"
#undef SYMBOL

static char reason[256];

// driver_reason is why there is no driver, or an empty string.
const char *driver_reason(void) { return reason; }

// gorgonia.org/cu calls cuInit when the program starts, and ends the process if it fails. The cuInit
// here only pretends success. The real driver starts when the program first looks for GPUs, because
// that takes time, and the program may first set the environment that selects them. Without a device
// nothing fails: cu finds no devices.
static int result, (*real_init)(unsigned), (*real_count)(int *);

static void start(void) {
	if (real_init) result = real_init(0);
}

// driver_init starts the driver the first time. It returns the result.
int driver_init(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
	return result;
}

static int count(int *n) {
	*n = 0;
	return driver_init() ? 0 : real_count(n);
}

static int init_without(unsigned flags) { (void)flags; return 0; }
static int count_without(int *n) { *n = 0; return 0; }

extern void *heft_at_cuInit, *heft_at_cuDeviceGetCount;

__attribute__((constructor)) static void load(void) {
	heft_at_cuInit = (void *)init_without, heft_at_cuDeviceGetCount = (void *)count_without;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *p;
	if (!driver) {
		const char *why = dlerror();
		strncpy(reason, why ? why : "libcuda.so.1 cannot be opened", sizeof reason - 1);
		return;
	}
#define SYMBOL(name) \
	if ((p = dlsym(driver, #name))) heft_at_##name = p;
#include "symbols.h"
#undef SYMBOL
	if (heft_at_cuInit == (void *)init_without || heft_at_cuDeviceGetCount == (void *)count_without) {
		strcpy(reason, "libcuda.so.1 is not a CUDA driver");
		heft_at_cuInit = (void *)init_without, heft_at_cuDeviceGetCount = (void *)count_without;
		return;
	}
	*(void **)&real_init = heft_at_cuInit, *(void **)&real_count = heft_at_cuDeviceGetCount;
	heft_at_cuInit = (void *)init_without, heft_at_cuDeviceGetCount = (void *)count;
}
